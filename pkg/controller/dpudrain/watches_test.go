package dpudrain

import (
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestWhatWakes: what is left on a host wakes it while it is drained, and no other.
func TestWhatWakes(t *testing.T) {
	f := newFixture(t)
	here, there := kubetest.WriterClaim("v", "dpu-n1", "a", 1), kubetest.WriterClaim("v", "dpu-n2", "a", 1)
	none := kubetest.WriterClaim("v", "", "", 0)
	none.Status = nil
	for name, c := range map[string]struct{ got, want int }{
		"a pod":                     {len(f.r.ofPod(t.Context(), kubetest.Pod("p", "n1"))), 1},
		"a pod of another host":     {len(f.r.ofPod(t.Context(), kubetest.Pod("p", "n2"))), 0},
		"a pod without a host":      {len(f.r.ofPod(t.Context(), kubetest.Pod("p", ""))), 0},
		"a pod of an unknown host":  {len(f.r.ofPod(t.Context(), kubetest.Pod("p", "n3"))), 0},
		"an attachment":             {len(f.r.ofAttachment(t.Context(), kubetest.DPUVolumeAttachment("v", "n1"))), 1},
		"an attachment elsewhere":   {len(f.r.ofAttachment(t.Context(), kubetest.DPUVolumeAttachment("v", "n2"))), 0},
		"a claim":                   {len(f.r.ofClaim(t.Context(), here)), 1},
		"another DPU's claim":       {len(f.r.ofClaim(t.Context(), there)), 0},
		"a device":                  {len(f.r.ofShown(t.Context(), kubetest.VolumeAttachment("a", "v", "dpu-n1"))), 1},
		"another DPU's device":      {len(f.r.ofShown(t.Context(), kubetest.VolumeAttachment("a", "v", "dpu-n2"))), 0},
		"a claim without a history": {len(f.r.ofClaim(t.Context(), none)), 0},
	} {
		if c.got != c.want {
			t.Errorf("%s wakes %d, want %d", name, c.got, c.want)
		}
	}
}

// TestWhichHosts: those that are drained, and those that still say so, wake by what a pass
// reads of them.
func TestWhichHosts(t *testing.T) {
	idle := kubetest.DPUStorageNode("a")
	drained, over, beaten, idleBeaten := idle.DeepCopy(), idle.DeepCopy(), idle.DeepCopy(), idle.DeepCopy()
	drained.Spec.Drain = &moorv1alpha1.DrainRequest{Reason: "new BFB"}
	over.Status.Conditions = []metav1.Condition{{Type: moorv1alpha1.ConditionDrained}}
	beaten.Spec.Drain, beaten.Status.DPU = drained.Spec.Drain, &moorv1alpha1.DPUState{}
	idleBeaten.Spec.DPUName = "another"
	for i, n := range []*moorv1alpha1.DPUStorageNode{idle, drained, over, beaten, idleBeaten} {
		n.ResourceVersion = strconv.Itoa(i)
	}
	if concerned(idle) || !concerned(drained) || !concerned(over) {
		t.Errorf("concerned: %t %t %t", concerned(idle), concerned(drained), concerned(over))
	}
	for name, c := range map[string]struct {
		was, is *moorv1alpha1.DPUStorageNode
		want    bool
	}{
		"a wish":             {idle, drained, true},
		"it is taken back":   {drained, idle, true},
		"a condition":        {idle, over, true},
		"the condition goes": {over, idle, true},
		"a heartbeat":        {drained, beaten, false},
		"no drain":           {idle, idleBeaten, false},
		"a resync":           {drained, drained, true},
		"an idle resync":     {idle, idle, false},
	} {
		if got := wakes(event.UpdateEvent{ObjectOld: c.was, ObjectNew: c.is}); got != c.want {
			t.Errorf("%s wakes: %t", name, got)
		}
	}
}
