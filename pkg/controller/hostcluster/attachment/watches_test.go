package attachment

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// wakes reports whether the change of an object wakes attachments.
func wakes[T client.Object](p predicate.TypedPredicate[client.Object], from T, change func(T)) bool {
	to := from.DeepCopyObject().(T)
	change(to)
	return p.Update(event.UpdateEvent{ObjectOld: from, ObjectNew: to})
}

// going is an object that is being deleted.
func going(o client.Object) {
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
}

func taint(keys ...string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = nil
		for _, k := range keys {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: k})
		}
	}
}

// TestWhatWakes: no beat does, nor anything else that no pass looks at.
func TestWhatWakes(t *testing.T) {
	node, volume, pv, pod := kubetest.DPUStorageNode("a"), kubetest.DPUVolume("vol", corev1.ReadWriteOnce), kubetest.PV("pv", "data", "vol"), kubetest.Pod("pod", "a", "data")
	node.Status.Host, node.Status.DPU = &moorv1alpha1.HostState{}, &moorv1alpha1.DPUState{}
	tainted := host("a")
	taint(corev1.TaintNodeNotReady)(tainted)
	for name, tc := range map[string]struct{ got, want bool }{
		"a beat of the host":         {wakes(dpuChanged, node, func(n *moorv1alpha1.DPUStorageNode) { n.Status.Host.Sequence++ }), false},
		"the DPU's half":             {wakes(dpuChanged, node, func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.SNAPReady = true }), false},
		"a condition of the host":    {wakes(dpuChanged, node, func(n *moorv1alpha1.DPUStorageNode) { n.Status.Conditions = []metav1.Condition{{Type: "Ready"}} }), false},
		"a dead mount, for findDPU":  {wakes(dpuChanged, node, func(n *moorv1alpha1.DPUStorageNode) { n.Status.Host.DeadMounts = []moorv1alpha1.DeadMount{{}} }), false},
		"a dead mount":               {wakes(toldChanged, node, func(n *moorv1alpha1.DPUStorageNode) { n.Status.Host.DeadMounts = []moorv1alpha1.DeadMount{{}} }), true},
		"a beat, for the mounts":     {wakes(toldChanged, node, func(n *moorv1alpha1.DPUStorageNode) { n.Status.Host.Sequence++ }), false},
		"another DPU":                {wakes(dpuChanged, node, func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName = "new" }), true},
		"a host comes":               {dpuChanged.Create(event.CreateEvent{Object: node}), true},
		"a host goes":                {dpuChanged.Delete(event.DeleteEvent{Object: node}), true},
		"a volume is bound":          {wakes(volumeChanged, volume, func(v *storagev1alpha1.DPUVolume) { v.Status.Phase = storagev1alpha1.DPUVolumeBound }), true},
		"a volume is being deleted":  {wakes(volumeChanged, volume, func(v *storagev1alpha1.DPUVolume) { going(v) }), true},
		"a volume has other writers": {wakes(volumeChanged, volume, func(v *storagev1alpha1.DPUVolume) { v.Spec.AccessModes = nil }), true},
		"a volume is taken over": {wakes(volumeChanged, volume, func(v *storagev1alpha1.DPUVolume) {
			v.Status.Conditions = []metav1.Condition{{Type: storagev1alpha1.ConditionDPUVolumeReconciled, Status: metav1.ConditionTrue}}
		}), true},
		"a replica of a volume":        {wakes(volumeChanged, volume, func(v *storagev1alpha1.DPUVolume) { v.Status.Replicas = &storagev1alpha1.ReplicaState{} }), false},
		"a volume comes":               {volumeChanged.Create(event.CreateEvent{Object: volume}), true},
		"a volume goes":                {volumeChanged.Delete(event.DeleteEvent{Object: volume}), true},
		"a claim is bound":             {wakes(bindingChanged, pv, func(p *corev1.PersistentVolume) { p.Status.Phase = corev1.VolumeAvailable }), true},
		"another claim is bound":       {wakes(bindingChanged, pv, func(p *corev1.PersistentVolume) { p.Spec.ClaimRef.Name = "other" }), true},
		"a label of a volume":          {wakes(bindingChanged, pv, func(p *corev1.PersistentVolume) { p.Labels = map[string]string{"a": "b"} }), false},
		"a pod ends":                   {wakes(userChanged, pod, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), true},
		"a pod is being deleted":       {wakes(userChanged, pod, func(p *corev1.Pod) { going(p) }), true},
		"a pod is ready":               {wakes(userChanged, pod, func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{}} }), false},
		"a pod without volumes":        {userChanged.Create(event.CreateEvent{Object: kubetest.Pod("pod", "a")}), false},
		"a pod is bound":               {userChanged.Create(event.CreateEvent{Object: pod}), true},
		"a pod goes":                   {userChanged.Delete(event.DeleteEvent{Object: pod}), true},
		"a Node is out of service":     {wakes(serviceChanged, host("a"), outOfService), true},
		"instead of not ready":         {wakes(serviceChanged, tainted, outOfService), true},
		"a Node is not ready":          {wakes(serviceChanged, host("a"), taint(corev1.TaintNodeNotReady)), false},
		"the status of a Node":         {wakes(serviceChanged, host("a"), func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{{}} }), false},
		"a Node comes, before its pod": {serviceChanged.Create(event.CreateEvent{Object: host("a")}), false},
		"a Node goes":                  {serviceChanged.Delete(event.DeleteEvent{Object: host("a")}), true},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: wakes %v, want %v", name, tc.got, tc.want)
		}
	}
}

// TestWhatOfAClaimWakes: who may write, and nothing else.
func TestWhatOfAClaimWakes(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*moorv1alpha1.WriterClaim)
		want   bool
	}{
		"its phase":        {func(c *moorv1alpha1.WriterClaim) { c.Status.Phase = moorv1alpha1.ClaimFencing }, true},
		"its holder":       {func(c *moorv1alpha1.WriterClaim) { c.Status.Holder = "dpu-b" }, true},
		"its attachment":   {func(c *moorv1alpha1.WriterClaim) { c.Status.Attachment = "b-vol" }, true},
		"its epoch":        {func(c *moorv1alpha1.WriterClaim) { c.Status.Epoch++ }, true},
		"no status":        {func(c *moorv1alpha1.WriterClaim) { c.Status = nil }, true},
		"a receipt":        {func(c *moorv1alpha1.WriterClaim) { c.Status.Receipts = []moorv1alpha1.Receipt{{Epoch: 1}} }, false},
		"a DPU cleared up": {func(c *moorv1alpha1.WriterClaim) { c.Status.Revoked = []moorv1alpha1.Revoked{{Epoch: 1}} }, false},
		"nothing of it":    {func(c *moorv1alpha1.WriterClaim) { c.ResourceVersion = "7" }, false},
	} {
		old := kubetest.WriterClaim("vol", "dpu-a", "a-vol", 1)
		now := old.DeepCopy()
		tc.change(now)
		if got := claimChanged.Update(event.TypedUpdateEvent[*moorv1alpha1.WriterClaim]{ObjectOld: old, ObjectNew: now}); got != tc.want {
			t.Errorf("%s: wakes %v, want %v", name, got, tc.want)
		}
	}
	if !claimChanged.Create(event.TypedCreateEvent[*moorv1alpha1.WriterClaim]{}) || !claimChanged.Delete(event.TypedDeleteEvent[*moorv1alpha1.WriterClaim]{}) {
		t.Error("a claim that comes or goes does not wake")
	}
}
