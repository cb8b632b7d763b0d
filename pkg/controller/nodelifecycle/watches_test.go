package nodelifecycle

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// TestWhatWakes: of a host's object and of a DPU's, what a pass reads wakes it, and a
// heartbeat does not.
func TestWhatWakes(t *testing.T) {
	for name, tc := range map[string]struct {
		change    func(*moorv1alpha1.DPUStorageNode)
		host, dpu bool
	}{
		"a heartbeat of the host": {func(n *moorv1alpha1.DPUStorageNode) {
			n.Status.Host.Sequence, n.Status.Host.Time, n.Status.Host.Version = 2, metav1.Now(), "v2"
		}, false, false},
		"a heartbeat of the DPU": {func(n *moorv1alpha1.DPUStorageNode) {
			n.Status.DPU.Sequence, n.Status.DPU.Time, n.Status.DPU.Version = 2, metav1.Now(), "v2"
		}, false, false},
		"a renewal of a lease": {func(n *moorv1alpha1.DPUStorageNode) {
			n.Status.DPU.Sequence, n.Status.DPU.Lease = 2, &moorv1alpha1.DPULease{Sequence: 2, DurationMillis: 1, GraceMillis: 1}
		}, false, false},
		"functions of the DPU": {func(n *moorv1alpha1.DPUStorageNode) {
			n.Status.DPU.Functions = []moorv1alpha1.FunctionCount{{Type: "vf", Total: 1}}
		}, false, false},
		"topology":              {func(n *moorv1alpha1.DPUStorageNode) { n.Status.Topology = map[string]string{"rack": "1"} }, false, false},
		"SNAP answers":          {func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.SNAPReady = true }, true, true},
		"a path is lost":        {func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.LostPaths = []moorv1alpha1.LostPath{{Volume: "v"}} }, true, true},
		"the last path is lost": {func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.AllPathsLost = true }, true, true},
		"the DPU is not known":  {func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU = nil }, true, true},
		"another DPU":           {func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName = "another" }, true, false},
		"zero trust":            {func(n *moorv1alpha1.DPUStorageNode) { n.Spec.HostMode = moorv1alpha1.ZeroTrust }, true, false},
		"a new generation":      {func(n *moorv1alpha1.DPUStorageNode) { n.Generation++ }, true, false},
		"it goes":               {func(n *moorv1alpha1.DPUStorageNode) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)} }, true, false},
		"a condition": {func(n *moorv1alpha1.DPUStorageNode) {
			n.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True"}}
		}, true, false},
		"nothing, as at a resync": {func(n *moorv1alpha1.DPUStorageNode) { n.ResourceVersion = "1" }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := kubetest.DPUStorageNode("a")
			before.ResourceVersion = "1"
			before.Status.Host, before.Status.DPU = &moorv1alpha1.HostState{Heartbeat: moorv1alpha1.Heartbeat{Sequence: 1}}, &moorv1alpha1.DPUState{Heartbeat: moorv1alpha1.Heartbeat{Sequence: 1}}
			after := before.DeepCopy()
			after.ResourceVersion = "2"
			tc.change(after)
			if got := changed(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.host {
				t.Errorf("in the host cluster it wakes: %v, want %v", got, tc.host)
			}
			if got := dpuChanged(before, after); got != tc.dpu {
				t.Errorf("in the DPU cluster it wakes: %v, want %v", got, tc.dpu)
			}
		})
	}
}

// TestWhatMatters: every part of an observation but the kubelet is in a condition.
func TestWhatMatters(t *testing.T) {
	for name, tc := range map[string]struct {
		after nodehealth.Observation
		want  bool
	}{
		"nothing":       {nodehealth.Observation{}, false},
		"the kubelet":   {nodehealth.Observation{Kubelet: nodehealth.Stale}, false},
		"the host":      {nodehealth.Observation{Host: nodehealth.Fresh}, true},
		"the DPU":       {nodehealth.Observation{DPU: nodehealth.Fresh}, true},
		"its report":    {nodehealth.Observation{HostSeen: nodehealth.SeenDead}, true},
		"its evidence":  {nodehealth.Observation{Message: "no link"}, true},
		"heard at last": {nodehealth.Observation{HostUnheard: true}, true},
		"grown up":      {nodehealth.Observation{Young: true}, true},
	} {
		if got := matters(nodehealth.Observation{}, tc.after); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
