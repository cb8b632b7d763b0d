package attachment

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestExhausted: that the DPU has no function left is told by a reason of its
// own, until it shows the device after all.
func TestExhausted(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	for _, step := range []struct {
		change func(*storagev1alpha1.VolumeAttachment)
		want   string
	}{
		{func(m *storagev1alpha1.VolumeAttachment) {
			stored(m)
			m.Status.DPU.Exhausted, m.Status.Message = true, "no function is free"
		}, "DPUAttached=False/Exhausted: DPU dpu-a: no function is free"},
		{func(m *storagev1alpha1.VolumeAttachment) { m.Status.DPU.Exhausted = false }, "DPUAttached=False/Pending: DPU dpu-a: no function is free"},
		{func(m *storagev1alpha1.VolumeAttachment) { shown(m); m.Status.Message = "" }, "DPUAttached=True/Success"},
	} {
		kubetest.Change(w.DPU, mirror("a"), step.change)
		w.MustReconcile(r, "a-vol")
		got, _ := kubetest.Read(w.Host, user("a"))
		if d := cmp.Diff([]string{step.want}, kubetest.Conditions(got.Status.Conditions, storagev1alpha1.ConditionDPUAttached)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		agree(t, got)
	}
}
