package hostcluster_test

import (
	"strings"
	"testing"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestFromDPFToSeveral: a volume that DPF made is in the DPU cluster that DPF put on record, though all have a copy.
func TestFromDPFToSeveral(t *testing.T) {
	s := openSeveral(t)
	s.host.Add(only("vol", "dpf/west"))
	s.settle()
	kubetest.Change(s.host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) {
		v.Finalizers = []string{storagev1alpha1.FinalizerDPUVolume}
		v.Status.State.DPUCluster = &storagev1alpha1.ObjectReference{Namespace: kubetest.DPUNamespace, Name: "third"}
	})
	copied := &storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject("vol")}
	copied.Annotations = map[string]string{storagev1alpha1.AnnotationOwnedByDPUVolume: kubetest.HostNamespace + "/vol"}
	s.east.DPU.Add(copied)
	kubetest.Change(s.west.DPU, copied.DeepCopy(), func(v *storagev1alpha1.Volume) { v.Labels = nil })
	s.settle()
	if said := s.said("vol", storagev1alpha1.ConditionReady); s.volumes()["vol"] == "dpf/east" || !strings.Contains(said, "DPF put it on record in DPU cluster "+kubetest.DPUNamespace+"/third: waiting for") {
		t.Errorf("%s: it says %s", s.volumes()["vol"], said)
	}
	for _, c := range []*life{s.east, s.west} {
		if m, _ := kubetest.Read(c.DPU, copied); m.Labels[storagev1alpha1.LabelOwnerUID] != "" {
			t.Error("a copy was taken over")
		}
	}
	kubetest.Change(s.host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) {
		v.Status.State.DPUCluster = &storagev1alpha1.ObjectReference{Namespace: "dpf", Name: "west"}
	})
	s.settle()
	if m, _ := kubetest.Read(s.west.DPU, copied); m.Labels[storagev1alpha1.LabelOwnerUID] == "" || s.said("vol", storagev1alpha1.ConditionReady) != "Ready=True/Success" {
		t.Errorf("it is not taken over where it is: %s", s.said("vol", storagev1alpha1.ConditionReady))
	}
}
