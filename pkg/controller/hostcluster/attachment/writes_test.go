package attachment

import (
	"testing"

	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// A cache that does not show the epoch yet, which was written a moment ago, is
// no reason to write it again.
func TestAnEpochIsWrittenOnce(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	old, _ := kubetest.Read(w.DPU, mirror("a"))
	if old.Spec.Epoch == 0 {
		w.MustReconcile(r, "a-vol")
		old, _ = kubetest.Read(w.DPU, mirror("a"))
	}
	if old.Spec.Epoch != 1 {
		t.Fatalf("epoch %d, want 1", old.Spec.Epoch)
	}
	w.MustReconcile(r, "a-vol")
	before := w.Writes()
	old.Spec.Epoch = 0
	w.CacheShows(old)
	w.MustReconcile(r, "a-vol")
	if n := w.Writes() - before; n != 0 {
		t.Errorf("%d writes, want none", n)
	}
}
