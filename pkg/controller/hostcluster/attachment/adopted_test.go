package attachment

import (
	"strings"
	"testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestNoClaimBeforeTheVolumeIsTakenOver: a volume that DPF made may be attached by what DPF made too,
// of which no claim tells. So there is none, and nothing is granted, before it is taken over.
func TestNoClaimBeforeTheVolumeIsTakenOver(t *testing.T) {
	for _, node := range []string{"a", "b"} {
		w, r := open(t)
		kubetest.Change(w.DPU, &storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject("vol")}, func(v *storagev1alpha1.Volume) {
			v.Labels = nil
			v.Annotations = map[string]string{storagev1alpha1.AnnotationOwnedByDPUVolume: kubetest.HostNamespace + "/vol"}
		})
		w.Host.Add(user(node))
		w.MustReconcile(r, user(node).Name)
		if _, found := kubetest.Read(w.DPU, &moorv1alpha1.WriterClaim{ObjectMeta: kubetest.DPUObject("vol")}); found {
			t.Error("there is a claim")
		}
		if _, found := kubetest.Read(w.DPU, mirror(node)); found {
			t.Error("there is a VolumeAttachment")
		}
		if got, _ := kubetest.Read(w.Host, user(node)); !strings.Contains(got.Status.Message, "DPF made it and it is not taken over yet") {
			t.Errorf("it says %q", got.Status.Message)
		}
	}
}
