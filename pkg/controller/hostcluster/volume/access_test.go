package volume

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestAccess: where a volume is wanted goes down, and that it cannot be had
// there, or from where it is reached, comes up.
func TestAccess(t *testing.T) {
	w, r := open(t)
	volume := user()
	wanted := []map[string]string{{"rack": "2"}, {"rack": "1"}}
	volume.Spec.AccessibleFrom = wanted
	volume.Spec.Replication = &storagev1alpha1.Replication{MaxShares: 3}
	w.Host.Add(volume, kubetest.DPUStoragePolicy("policy"))
	accessible := func() string {
		t.Helper()
		w.MustReconcile(r, "vol")
		v, _ := kubetest.Read(w.Host, user())
		return kubetest.Conditions(v.Status.Conditions, storagev1alpha1.ConditionAccessible)[0]
	}
	if got := accessible(); strings.Contains(got, "=True") || strings.Contains(got, "=False") {
		t.Errorf("told before anything was known: %s", got)
	}
	m, _ := kubetest.Read(w.DPU, mirror())
	if diff := cmp.Diff(wanted, m.Spec.Request.AccessibleFrom); diff != "" {
		t.Errorf("wanted there (-want +got):\n%s", diff)
	}
	if m.Spec.Request.MaxShares != 3 {
		t.Errorf("it is to be had by %d hosts there", m.Spec.Request.MaxShares)
	}
	kubetest.Change(w.DPU, mirror(), func(m *storagev1alpha1.Volume) { m.Status.Unreachable, m.Status.Message = true, "no vendor is there" })
	if got, want := accessible(), "Accessible=False/Failure: no vendor is there"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	kubetest.Change(w.DPU, mirror(), func(m *storagev1alpha1.Volume) {
		available(m)
		m.Status.Unreachable, m.Status.Message, m.Spec.Volume.AccessibleTopology = false, "", wanted[1:]
	})
	if got, want := accessible(), "Accessible=True/Success"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	v, _ := kubetest.Read(w.Host, user())
	if diff := cmp.Diff(wanted[1:], v.Status.State.VolumeInfo.AccessibleTopology); diff != "" || v.Status.Phase != storagev1alpha1.DPUVolumeBound {
		t.Errorf("%s (-want +got):\n%s", v.Status.Phase, diff)
	}
	// What is said of one that is there is no word on whether it can be had.
	kubetest.Change(w.DPU, mirror(), func(m *storagev1alpha1.Volume) { m.Status.Unreachable, m.Status.Message = true, "no DPU reaches it" })
	if got, want := accessible(), "Accessible=True/Success"; got != want {
		t.Errorf("of one that is bound: %s, want %s", got, want)
	}
}

// TestAccessIsNotLost: a DPU cluster whose kinds are older drops the field; such
// a volume is not taken for one that may be anywhere.
func TestAccessIsNotLost(t *testing.T) {
	w, r := open(t)
	volume := user()
	volume.Spec.AccessibleFrom = []map[string]string{{"rack": "2"}}
	w.Host.Add(volume, kubetest.DPUStoragePolicy("policy"))
	w.MustReconcile(r, "vol")
	kubetest.Change(w.DPU, mirror(), func(m *storagev1alpha1.Volume) { available(m); m.Spec.Request.AccessibleFrom = nil })
	w.MustReconcile(r, "vol")
	v, _ := kubetest.Read(w.Host, user())
	if v.Status.Phase == storagev1alpha1.DPUVolumeBound || !strings.Contains(strings.Join(said(v), " "), "does not say from where it is to be reached") {
		t.Errorf("%s: %v", v.Status.Phase, said(v))
	}
}
