package attachment

import (
	"strings"
	"testing"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestNothingIsMadeForWhatIsGone: an attachment that only an old cache has, as after a
// start, gets nothing made in the DPU cluster. Nothing would take it back, and
// it would hold the right to write for ever.
func TestNothingIsMadeForWhatIsGone(t *testing.T) {
	for name, end := range map[string]func(*kubetest.Clusters){
		"gone":     func(w *kubetest.Clusters) { w.Host.Remove(user("a")) },
		"replaced": func(w *kubetest.Clusters) { w.Host.Remove(user("a")); w.Host.Add(user("a")) },
	} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(user("a"))
			old, _ := kubetest.Read(w.Host, user("a"))
			end(w)
			old.Finalizers = []string{storagev1alpha1.FinalizerDPUVolumeAttachment}
			w.CacheShows(old)
			w.MustReconcile(r, "a-vol")
			if m, found := kubetest.Read(w.DPU, mirror("a")); found {
				t.Errorf("VolumeAttachment %s was made", m.Name)
			}
			if c := claimOf(w); c.Status != nil {
				t.Errorf("the claim is %+v", c.Status)
			}
			w.CacheIsCurrent()
			w.MustReconcile(r, "a-vol")
			if _, found := kubetest.Read(w.DPU, mirror("a")); found != (name == "replaced") {
				t.Errorf("with a current cache: a VolumeAttachment is there: %v", found)
			}
		})
	}
}

// TestDeletedIsNotBegun is the same for one that is on its way.
func TestDeletedIsNotBegun(t *testing.T) {
	w, r := open(t)
	held := user("a")
	held.Finalizers = []string{storagev1alpha1.FinalizerDPUVolumeAttachment}
	w.Host.Add(held)
	old, _ := kubetest.Read(w.Host, user("a"))
	w.Host.Remove(user("a"))
	w.CacheShows(old)
	w.MustReconcile(r, "a-vol")
	if _, found := kubetest.Read(w.DPU, mirror("a")); found {
		t.Error("a VolumeAttachment was made")
	}
}

// TestSuccessorEndsWhatIsLeft: what was made for an earlier attachment of the name, which is
// gone, is deleted, since nothing else does that; but only if it is the earlier one's.
func TestSuccessorEndsWhatIsLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		old    bool // the cache has the earlier attachment still, and what is there is the successor's
		gone   bool
	}{
		"left behind":       {labels: map[string]string{storagev1alpha1.LabelOwnerUID: "earlier"}, gone: true},
		"of unknown origin": {},
		"the successor's":   {labels: map[string]string{storagev1alpha1.LabelOwnerUID: "DPUVolumeAttachment-a-vol-2"}, old: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(user("a"))
			m := kubetest.VolumeAttachment("a-vol", "vol", "dpu-a")
			m.Labels, m.Finalizers = tc.labels, []string{storagev1alpha1.FinalizerWriterClaim}
			w.DPU.Add(m)
			if tc.old {
				old, _ := kubetest.Read(w.Host, user("a"))
				old.Finalizers = []string{storagev1alpha1.FinalizerDPUVolumeAttachment}
				w.Host.Remove(user("a"))
				w.Host.Add(user("a"))
				w.CacheShows(old)
			}
			w.MustReconcile(r, "a-vol")
			left, _ := kubetest.Read(w.DPU, mirror("a"))
			if going := !left.DeletionTimestamp.IsZero(); going != tc.gone {
				t.Errorf("it goes: %v, want %v", going, tc.gone)
			}
			if got := messageOn(w, "a"); !tc.old && !strings.Contains(got, "of an earlier attachment of this name is still being removed") {
				t.Errorf("it says %q", got)
			}
		})
	}
}
