package attachment

import (
	"testing"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
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

// TestAVolumeAttachmentIsMadeOnce: one that the cache does not show yet is not made
// again, which the API server would refuse; but it is once the cache had time to.
func TestAVolumeAttachmentIsMadeOnce(t *testing.T) {
	w, r := open(t)
	r.Clock = w.Clock
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	first, _ := kubetest.Read(w.DPU, mirror("a"))
	w.CacheHides(mirror("a"))
	before := w.Writes()
	w.Step(kube.CacheLag - time.Second)
	w.MustReconcile(r, "a-vol")
	if n := w.Writes() - before; n != 0 {
		t.Errorf("%d writes, want none", n)
	}
	freeClaim(w)
	kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Finalizers = nil })
	w.DPU.Remove(mirror("a"))
	w.Step(time.Second)
	w.MustReconcile(r, "a-vol")
	if second, found := kubetest.Read(w.DPU, mirror("a")); !found || second.UID == first.UID {
		t.Error("what is gone and was never shown is not made again")
	}
}

// TestOneThatWasShownIsMadeAgain: a VolumeAttachment that the cache has shown, and that is
// gone, is not waited for.
func TestOneThatWasShownIsMadeAgain(t *testing.T) {
	w, r := open(t)
	r.Clock = w.Clock
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	w.MustReconcile(r, "a-vol")
	first, _ := kubetest.Read(w.DPU, mirror("a"))
	kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Finalizers = nil })
	w.DPU.Remove(mirror("a"))
	freeClaim(w)
	w.MustReconcile(r, "a-vol")
	if second, found := kubetest.Read(w.DPU, mirror("a")); !found || second.UID == first.UID {
		t.Error("it is not made again")
	}
}

// TestReadsOfAnAttach: of a volume that was used before, the claim is read live once,
// before anything is made, the attachment itself just before it is, and the VolumeAttachment
// and the mark of the last grant once each, before the grant.
func TestReadsOfAnAttach(t *testing.T) {
	for name, tc := range map[string]struct {
		used bool
		want int
	}{
		"a new volume":             {false, 6}, // there is no claim, but a Volume to make it of, and a DPUVolume with a mark
		"one that was used before": {true, 4},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			r.Clock = w.Clock
			if tc.used {
				c := kubetest.WriterClaim("vol", "", "", 3)
				c.Status.Phase = moorv1alpha1.ClaimFree
				w.DPU.Add(c)
			}
			w.Host.Add(user("a"))
			before := w.LiveReads()
			w.MustReconcile(r, "a-vol")
			if n := w.LiveReads() - before; n != tc.want {
				t.Errorf("%d reads, want %d", n, tc.want)
			}
			if c := claimOf(w); c.Status == nil || c.Status.Phase != moorv1alpha1.ClaimGranted {
				t.Errorf("the claim is %+v", c.Status)
			}
		})
	}
}
