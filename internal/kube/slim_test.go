package kube

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestSlimNode: what the controllers read of a Node stays, each field by its name,
// and nothing else.
func TestSlimNode(t *testing.T) {
	at := metav1.NewTime(time.Unix(1000, 0))
	meta := metav1.ObjectMeta{
		Name: "n", UID: "u", ResourceVersion: "7", Labels: map[string]string{corev1.LabelTopologyZone: "z"},
		CreationTimestamp: at, DeletionTimestamp: &at, Finalizers: []string{"f"},
	}
	taints := []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule, Value: "v", TimeAdded: &at}}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "r", LastTransitionTime: at}
	ours := corev1.NodeCondition{Type: "example.com/Dead", Status: corev1.ConditionTrue, Reason: "d", LastTransitionTime: at}
	volumes := []corev1.AttachedVolume{{Name: "kubernetes.io/csi/other^x", DevicePath: "d"}}

	whole := &corev1.Node{ObjectMeta: meta}
	whole.Annotations = map[string]string{"a": "b"}
	whole.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	whole.Spec = corev1.NodeSpec{PodCIDR: "10.0.0.0/24", ProviderID: "p", Taints: taints, Unschedulable: true}
	told := ready
	told.LastHeartbeatTime, told.Message = at, "long"
	whole.Status = corev1.NodeStatus{
		Conditions:      []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}, told, ours},
		Images:          []corev1.ContainerImage{{Names: []string{"large"}}},
		VolumesAttached: volumes, VolumesInUse: []corev1.UniqueVolumeName{"in-use"},
		NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6", BootID: "b"},
	}
	got, err := SlimNode(whole)
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.Node{
		ObjectMeta: meta,
		Spec:       corev1.NodeSpec{Taints: taints, Unschedulable: true},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{ready, ours}, VolumesAttached: volumes, NodeInfo: corev1.NodeSystemInfo{BootID: "b"},
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if other, err := SlimNode(&corev1.Pod{}); err != nil || other.(*corev1.Pod) == nil {
		t.Errorf("another kind became %v, %v", other, err)
	}
}

// TestSlimLease: whose it is and when it was renewed, and nothing else.
func TestSlimLease(t *testing.T) {
	spec := coordinationv1.LeaseSpec{HolderIdentity: ptr.To("n"), RenewTime: ptr.To(metav1.NewMicroTime(time.Unix(1000, 0)))}
	whole := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "s", Name: "n", UID: "u", ResourceVersion: "7"}, Spec: spec}
	want := whole.DeepCopy()
	whole.Labels, whole.Annotations = map[string]string{"a": "b"}, map[string]string{"a": "b"}
	whole.OwnerReferences, whole.ManagedFields = []metav1.OwnerReference{{Name: "n"}}, []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	whole.Spec.LeaseDurationSeconds = ptr.To(int32(40))
	got, err := SlimLease(whole)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if other, err := SlimLease(&corev1.Pod{}); err != nil || other.(*corev1.Pod) == nil {
		t.Errorf("another kind became %v, %v", other, err)
	}
}
