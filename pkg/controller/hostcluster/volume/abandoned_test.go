package volume

import (
	"strings"
	"testing"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestRemoveTakesBackTheAbandoned: a volume that is deleted asks for what DPUs still have of
// it, though no DPUVolumeAttachment is there that could be deleted, and says for whom it waits.
func TestRemoveTakesBackTheAbandoned(t *testing.T) {
	w, r := open(t)
	silent := false
	r.Clock, r.Silent = w.Clock, func(string) bool { return silent }
	w.Host.Add(user(), kubetest.DPUStoragePolicy("policy"))
	w.MustReconcile(r, "vol")
	kubetest.Change(w.DPU, mirror(), func(m *storagev1alpha1.Volume) { m.Finalizers = []string{storagev1alpha1.FinalizerVolume} })
	left := kubetest.VolumeAttachment("n1-vol", "vol", "dpu-n1")
	left.Annotations = map[string]string{storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment: kubetest.HostNamespace + "/n1-vol"}
	left.Finalizers = []string{storagev1alpha1.FinalizerDPUAttachment, storagev1alpha1.FinalizerWriterClaim}
	w.DPU.Add(left)
	w.Host.Remove(user())
	w.MustReconcile(r, "vol")
	if a, found := kubetest.Read(w.DPU, left); !found || a.DeletionTimestamp.IsZero() {
		t.Errorf("the VolumeAttachment: there %v, deleted at %v", found, a.DeletionTimestamp)
	}
	told := func(want string) {
		t.Helper()
		got, found := kubetest.Read(w.Host, user())
		if !found {
			t.Fatal("the DPUVolume went before its Volume")
		}
		if line := said(got)[0]; !strings.Contains(line, want) {
			t.Errorf("told %q, want %q", line, want)
		}
	}
	told("DPUVolumeAttachment n1-vol was taken away by force, and its VolumeAttachment in the DPU cluster is deleted: waiting for DPU dpu-n1 to withdraw the volume")
	silent = true
	w.DPU.Add(kubetest.WriterClaim("vol", "dpu-n1", "n1-vol", 1))
	w.MustReconcile(r, "vol")
	told("which is silent; an operator who knows that DPU dpu-n1 cannot write may write spec.operatorReceipt into WriterClaim vol")
}
