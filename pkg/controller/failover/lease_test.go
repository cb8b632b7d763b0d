package failover

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// The lease of the tests: it is over after 30.06 s, and its bound is 70.1 s.
const (
	leaseDuration = 30 * time.Second
	leaseGrace    = 40 * time.Second
)

// TestNote: a change of anything begins the wait anew.
func TestNote(t *testing.T) {
	r, start := &renewals{}, time.Unix(1e9, 0)
	steps := []struct {
		name            string
		uid             types.UID
		sequence, lasts int64
		fresh           bool
	}{
		{"seen first", "u", 7, 30, true},
		{"the same", "u", 7, 30, false},
		{"a renewal", "u", 8, 30, true},
		{"a cache that is behind", "u", 7, 30, true},
		{"another lease", "u", 7, 31, true},
		{"another object", "v", 7, 31, true},
		{"the same again", "v", 7, 31, false},
	}
	at := start
	for i, s := range steps {
		n := &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "dpu-a", UID: s.uid}}
		n.Status.DPU = leased(s.sequence, s.lasts*1000, 1)
		now := start.Add(time.Duration(i+1) * time.Second)
		if s.fresh {
			at = now
		}
		if _, got, given := r.note(n, now); !got.Equal(at) || !given {
			t.Errorf("%s: since %s, want %s; given: %v", s.name, got, at, given)
		}
	}
	n := &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "dpu-b"}}
	if _, at, given := r.note(n, start); given || !at.Equal(start) {
		t.Errorf("a DPU that never beat gives a lease: %v; it is known since %s, want %s", given, at, start)
	}
}

// TestForgetsWhoIsGone: what is remembered of DPUs does not grow with those that
// ever were, and one that comes back begins anew.
func TestForgetsWhoIsGone(t *testing.T) {
	s := newLeaseStage(t)
	remembers := func() int { return len(s.f.leases.seen.last) }
	there, _ := kubetest.Read(s.DPU, kubetest.DPUStorageNode("dpu-a"))
	for name, gone := range map[string]func(){
		"a watch tells": func() {
			s.f.observedChanged().Delete(event.TypedDeleteEvent[*moorv1alpha1.DPUStorageNode]{Object: there})
		},
		"a pass sees it": func() { s.DPU.Remove(kubetest.DPUStorageNode("dpu-a")); s.mustPass() },
	} {
		s.f.observedChanged().Update(event.TypedUpdateEvent[*moorv1alpha1.DPUStorageNode]{ObjectOld: there, ObjectNew: there})
		if remembers() != 1 {
			t.Fatalf("%s: %d DPUs are remembered before, want 1", name, remembers())
		}
		if gone(); remembers() != 0 {
			t.Errorf("%s: %d DPUs are remembered that are gone", name, remembers())
		}
	}
	if _, at, _ := s.f.leases.seen.note(there, s.Clock.Now()); !at.Equal(s.Clock.Now()) {
		t.Errorf("the lease of a DPU that is back counts from %s, want from now", at)
	}
}

func leased(sequence, duration, grace int64) *moorv1alpha1.DPUState {
	return &moorv1alpha1.DPUState{
		Heartbeat: moorv1alpha1.Heartbeat{Sequence: sequence}, Host: &moorv1alpha1.HostObservation{Alive: true},
		Lease: &moorv1alpha1.DPULease{Sequence: sequence, DurationMillis: duration, GraceMillis: grace},
	}
}

// leaseFixture is a fixture whose DPU dpu-a has its own object and gives a lease.
type leaseFixture struct{ *fixture }

func newLeaseStage(t *testing.T) leaseFixture {
	s := leaseFixture{newFixture(t)}
	n := kubetest.DPUStorageNode("dpu-a")
	n.Spec.DPUName = ""
	n.Status.DPU = leased(100, leaseDuration.Milliseconds(), leaseGrace.Milliseconds())
	s.DPU.Add(n)
	s.dpuObject(func(*moorv1alpha1.DPUStorageNode) {})
	s.renew(10)
	return s
}

// renew lets seconds pass in which all live and dpu-a renews its lease.
func (s leaseFixture) renew(seconds int) {
	s.t.Helper()
	for range seconds / 5 {
		s.dpuObject(func(n *moorv1alpha1.DPUStorageNode) {
			n.Status.DPU.Sequence++
			if n.Status.DPU.Lease != nil {
				n.Status.DPU.Lease.Sequence++
			}
		})
		s.mustPass()
		s.live(5, "a", "b", "dpu-b")
	}
}

// silent lets seconds pass in which dpu-a is not heard.
func (s leaseFixture) silent(seconds int) {
	s.t.Helper()
	for range seconds / 5 {
		s.live(5, "a", "b", "dpu-b")
		s.mustPass()
	}
}

// dpuObject changes what dpu-a says, and what is mirrored of it.
func (s leaseFixture) dpuObject(change func(*moorv1alpha1.DPUStorageNode)) {
	s.t.Helper()
	s.alone(change)
	there, _ := kubetest.Read(s.DPU, kubetest.DPUStorageNode("dpu-a"))
	s.host("a", func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU = there.Status.DPU.DeepCopy() })
}

// alone changes what dpu-a says, and not what is mirrored of it.
func (s leaseFixture) alone(change func(*moorv1alpha1.DPUStorageNode)) {
	s.t.Helper()
	kubetest.Change(s.DPU, kubetest.DPUStorageNode("dpu-a"), change)
	s.renewed = s.Clock.Now()
}

// leaseOver is what the receipt of the lease says, by what the world knows.
func (s *fixture) leaseOver() bool {
	n, found := kubetest.Read(s.DPU, kubetest.DPUStorageNode("dpu-a"))
	return found && n.Status.DPU != nil && n.Status.DPU.Lease != nil && n.Status.DPU.Lease.Sequence == n.Status.DPU.Sequence &&
		s.Clock.Since(s.renewed) >= 70100*time.Millisecond
}

func (s leaseFixture) wantReceipt(want moorv1alpha1.ReceiptKind) {
	s.t.Helper()
	s.wantPhase(moorv1alpha1.ClaimFree)
	receipts := s.claim().Status.Receipts
	if last := receipts[len(receipts)-1]; last.Kind != want || last.Holder != "dpu-a" || last.Epoch != 4 {
		s.t.Errorf("receipt %+v, want %s", last, want)
	}
}

// TestLeaseBound: a DPU that is not heard is left alone until its lease is over;
// then its claim is fenced, freed after the bound, and the pod goes in order.
func TestLeaseBound(t *testing.T) {
	s := newLeaseStage(t)
	s.silent(25)
	s.wantPhase(moorv1alpha1.ClaimGranted)
	s.wantSays("False/Held", "DPUDead", "the end of its lease is waited for")
	s.silent(10)
	s.wantPhase(moorv1alpha1.ClaimFencing)
	s.wantSays("True/Fencing", "its lease is over", "the bound of its lease is waited for")
	s.silent(30)
	s.wantPhase(moorv1alpha1.ClaimFencing)
	if !s.hasPod("app") {
		t.Error("the pod went before the volume was free")
	}
	s.silent(10)
	s.wantReceipt(moorv1alpha1.ReceiptLeaseBound)
	if s.claim().Status.RevokedEpoch("dpu-a") != 4 {
		t.Error("that the DPU did not confirm it is not kept")
	}
	if s.mustPass(); s.hasPod("app") || s.tainted("a") {
		t.Errorf("pod there: %v, tainted: %v", s.hasPod("app"), s.tainted("a"))
	}
	if reasons := s.Reasons(); !strings.Contains(reasons, "FailoverFencing") || !strings.Contains(reasons, "FailoverFenced") || !strings.Contains(reasons, "FailoverReleased") {
		t.Errorf("the events are %s", reasons)
	}
}

// TestNoLeaseBound: everything that keeps the bound from counting.
func TestNoLeaseBound(t *testing.T) {
	cases := map[string]struct {
		before func(leaseFixture)
		phase  moorv1alpha1.ClaimPhase
	}{
		"no lease was ever given": {func(s leaseFixture) {
			s.dpuObject(func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.Lease = nil })
		}, moorv1alpha1.ClaimGranted},
		"the lease is another program's": {func(s leaseFixture) {
			s.dpuObject(func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.Sequence++ })
		}, moorv1alpha1.ClaimGranted},
		"the DPU has no object": {func(s leaseFixture) {
			s.DPU.Remove(kubetest.DPUStorageNode("dpu-a"))
		}, moorv1alpha1.ClaimGranted},
		"the controller has just restarted": {func(s leaseFixture) {
			s.silent(60)
			s.restart()
			s.live(10, "a", "b", "dpu-b")
		}, moorv1alpha1.ClaimFencing},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newLeaseStage(t)
			c.before(s)
			s.silent(65)
			s.wantPhase(c.phase)
			if !s.hasPod("app") {
				t.Error("the pod is gone")
			}
		})
	}
}

// TestLeaseReadLive: a renewal that only the API server knows begins the wait
// anew, and a lease that was taken back there is none.
func TestLeaseReadLive(t *testing.T) {
	for name, last := range map[string]func(*moorv1alpha1.DPUState){
		"renewed":    func(d *moorv1alpha1.DPUState) { d.Sequence, d.Lease.Sequence = d.Sequence+1, d.Sequence+1 },
		"taken back": func(d *moorv1alpha1.DPUState) { d.Sequence, d.Lease = d.Sequence+1, nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := newLeaseStage(t)
			s.silent(65)
			s.wantPhase(moorv1alpha1.ClaimFencing)
			// The cache does not hear of it.
			cached, _ := kubetest.Read(s.DPU, kubetest.DPUStorageNode("dpu-a"))
			s.CacheShows(cached)
			s.alone(func(n *moorv1alpha1.DPUStorageNode) { last(n.Status.DPU) })
			s.silent(15)
			s.wantPhase(moorv1alpha1.ClaimFencing)
		})
	}
}

// TestLeaseReturn: a DPU that comes back in the middle gives its own receipt, and
// the pod, which has lost its volume, goes in order.
func TestLeaseReturn(t *testing.T) {
	s := newLeaseStage(t)
	s.silent(35)
	s.wantPhase(moorv1alpha1.ClaimFencing)
	s.renew(10)
	s.retire()
	s.renew(10)
	s.wantReceipt(moorv1alpha1.ReceiptDPU)
	if s.hasPod("app") {
		t.Error("a pod that has lost its volume stays")
	}
}

// TestLeaseLetsGo: after the bound the holds of the silent DPU go off the
// attachment, once the host cluster lets go of it.
func TestLeaseLetsGo(t *testing.T) {
	s := newLeaseStage(t)
	s.silent(75)
	s.wantReceipt(moorv1alpha1.ReceiptLeaseBound)
	a := kubetest.DPUVolumeAttachment("vol", "a")
	if err := s.Host.Direct.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	s.silent(5)
	m, _ := kubetest.Read(s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject("a-vol")})
	if got := fmt.Sprint(m.Finalizers); strings.Contains(got, storagev1alpha1.FinalizerDPUAttachment) || strings.Contains(got, storagev1alpha1.FinalizerWriterClaim) {
		t.Errorf("finalizers %s", got)
	}
}
