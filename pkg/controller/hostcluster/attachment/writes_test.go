package attachment

import (
	"testing"

	world "github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
)

// A cache that does not show the epoch yet, which was written a moment ago, is
// no reason to write it again.
func TestAnEpochIsWrittenOnce(t *testing.T) {
	w, r := open(t)
	w.AddHost(user("a"))
	w.MustPass(r, "a-vol")
	old, _ := world.Read(w, w.DPU, mirror("a"))
	if old.Spec.Epoch == 0 {
		w.MustPass(r, "a-vol")
		old, _ = world.Read(w, w.DPU, mirror("a"))
	}
	if old.Spec.Epoch != 1 {
		t.Fatalf("epoch %d, want 1", old.Spec.Epoch)
	}
	w.MustPass(r, "a-vol")
	before := w.Writes()
	old.Spec.Epoch = 0
	w.CacheShows(old)
	w.MustPass(r, "a-vol")
	if n := w.Writes() - before; n != 0 {
		t.Errorf("%d writes, want none", n)
	}
}
