package failover

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/failover/detach"
)

// TestFailoverCrash loses each write in turn, with and without effect, and goes on
// with a new instance that remembers nothing.
func TestFailoverCrash(t *testing.T) {
	for _, late := range []bool{false, true} {
		lost := 0
		for k := 1; k <= 40; k++ {
			s := newFixture(t)
			s.vouch()
			s.live(30, "b")
			s.notReady("a")
			s.LoseWrite(k, late)
			if !s.toTheEnd(t) {
				break
			}
			lost++
		}
		if lost < 7 {
			t.Errorf("late %v: only %d writes were lost", late, lost)
		}
	}
}

// toTheEnd plays everybody until the failover has ended, and starts fence
// anew after each error.
func (s *fixture) toTheEnd(t *testing.T) (lost bool) {
	t.Helper()
	for range 15 {
		if err := s.pass("a"); err != nil {
			if !errors.Is(err, kubetest.ErrLost) && !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
			lost = true
			s.restart()
			s.live(35, "b")
			continue
		}
		if m, found := kubetest.Read(s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject("a-vol")}); found && !m.DeletionTimestamp.IsZero() {
			s.noticed()
		}
		if sv, found := s.sv(); found && !sv.DeletionTimestamp.IsZero() {
			s.revoked()
		}
		if !s.hasPod("app") {
			s.Host.Remove(kubetest.DPUVolumeAttachment("vol", "a"))
			if m, found := kubetest.Read(s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject("a-vol")}); !found || len(m.Finalizers) == 1 {
				break
			}
		}
	}
	s.wantPhase(freed)
	if r := s.claim().Status.Receipts; len(r) != 1 || s.hasPod("app") || !s.tainted("a") {
		t.Errorf("receipts %+v, pod %v, tainted %v", r, s.hasPod("app"), s.tainted("a"))
	}
	return lost
}

// TestTwoLeaders: an old leader with an old reading of the claim writes
// nothing.
func TestTwoLeaders(t *testing.T) {
	s := newFixture(t)
	s.seenDead("a")
	s.mustPass()
	stale := s.claim()
	receipt := moorv1alpha1.Receipt{Kind: moorv1alpha1.ReceiptDPU, Holder: "dpu-a", AttachmentUID: stale.Status.AttachmentUID, Epoch: 4}
	s.retire()
	s.mustPass()
	s.wantPhase(freed)
	kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { // hostcluster grants to another
		c.Status.Phase, c.Status.Holder, c.Status.Attachment, c.Status.Epoch = granted, "dpu-b", "b-vol", 5
	})
	if _, err := detach.Free(t.Context(), s.DPU.Client, stale, receipt, s.Clock.Now()); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	for range 3 {
		s.mustPass()
	}
	if c := s.claim().Status; c.Phase != granted || c.Holder != "dpu-b" || c.Epoch != 5 {
		t.Errorf("the claim of the new holder is %+v", c)
	}
}

// TestOldCacheBeginsNothing: the claim is read live before it is written.
func TestOldCacheBeginsNothing(t *testing.T) {
	s := newFixture(t)
	s.CacheShows(s.claim())
	kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) {
		c.Status.Holder, c.Status.Attachment, c.Status.Epoch = "dpu-b", "b-vol", 5
	})
	s.seenDead("a")
	s.mustPass()
	if c := s.claim().Status; c.Phase != granted || c.Holder != "dpu-b" {
		t.Errorf("the claim is %+v", c)
	}
}
