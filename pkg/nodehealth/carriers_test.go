package nodehealth

import (
	"testing"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// leases lets seconds pass, in steps of 5, in which the Leases of those named change and
// their objects do not.
func (p *player) leases(seconds int, of ...string) {
	for range seconds / 5 {
		p.pass(5, "b/host")
		p.o.SelfHeartbeat(DPUCluster)
		for _, who := range of {
			in := HostCluster
			if who[2:] == "dpu" {
				in = DPUCluster
			}
			p.o.Lease(who[:1], in, p.clock.Now().Add(-24*time.Hour))
		}
		p.o.Observe(p.nodes["a"])
	}
}

// TestLeaseCarriesTheHeartbeat: of host and DPU each, while the object stands still; and
// who writes the object alone is heard as before.
func TestLeaseCarriesTheHeartbeat(t *testing.T) {
	p := newPlayer(t)
	p.leases(60, "a/host", "a/dpu")
	p.want(Fresh, Fresh)
	p.leases(15, "a/host")
	p.want(Fresh, Quiet)
	p.leases(10, "a/host")
	p.want(Fresh, Stale)
	p.leases(5, "a/dpu")
	p.want(Fresh, Fresh)
	p.leases(25, "a/dpu")
	p.want(Stale, Fresh)
	p.pass(10, "a/host", "b/host", "b/dpu")
	p.want(Fresh, Fresh)
	p.pass(30, "a/host", "a/dpu")
	p.want(Fresh, Fresh)
}

// TestOneCarrierIsStuck: either is enough, whichever stands still.
func TestOneCarrierIsStuck(t *testing.T) {
	p := newPlayer(t)
	p.o.Lease("a", HostCluster, p.clock.Now())
	p.pass(60, "a/host", "a/dpu", "b/host")
	p.want(Fresh, Fresh)
	p.leases(60, "a/host", "a/dpu")
	p.want(Fresh, Fresh)
}

// TestRepetitionIsNoSign: what a carrier says again is none, however often the other was
// heard in between, and whatever is read in turn.
func TestRepetitionIsNoSign(t *testing.T) {
	p := newPlayer(t)
	at := p.clock.Now()
	p.o.Lease("a", HostCluster, at)
	p.o.Lease("a", DPUCluster, at)
	for range 6 {
		p.pass(5, "b/host")
		p.o.SelfHeartbeat(DPUCluster)
		p.o.Lease("a", HostCluster, at)
		p.o.Lease("a", DPUCluster, at)
		p.o.Observe(p.nodes["a"])
	}
	p.want(Stale, Stale)
	if got := p.o.Known("a"); !got.HostUnheard || !got.DPUUnheard {
		t.Errorf("heard by repetition: %+v", got)
	}
}

// TestFirstReadIsNoSign: a Lease that is read first may be of any time, also when the
// object was heard before.
func TestFirstReadIsNoSign(t *testing.T) {
	p := newPlayer(t)
	p.pass(30, "a/host", "a/dpu", "b/host")
	p.pass(20, "b/host", "b/dpu")
	p.want(Quiet, Quiet)
	p.o.Lease("a", HostCluster, p.clock.Now())
	p.o.Lease("a", DPUCluster, p.clock.Now())
	p.want(Quiet, Quiet)
	p.o.Lease("a", HostCluster, p.clock.Now().Add(time.Microsecond))
	p.want(Fresh, Quiet)
}

// TestLeaseMadeAnew: that it is gone says nothing, that it is there as it was is no sign
// of life, and any other time is one, also one that is earlier.
func TestLeaseMadeAnew(t *testing.T) {
	p := newPlayer(t)
	at := p.clock.Now()
	p.o.Lease("a", HostCluster, at)
	p.leases(25, "a/host", "a/dpu")
	last := p.clock.Now().Add(-24 * time.Hour)
	p.pass(25, "b/host", "b/dpu")
	p.o.Lease("a", HostCluster, last)
	p.want(Stale, Stale)
	p.o.Lease("a", HostCluster, at.Add(-48*time.Hour))
	p.want(Fresh, Stale)
}

// TestLeaseOfAZeroTrustHost: it has no heartbeat, so nothing in its name is one.
func TestLeaseOfAZeroTrustHost(t *testing.T) {
	p := newPlayer(t)
	p.nodes["a"].Spec.HostMode = moorv1alpha1.ZeroTrust
	p.leases(60, "a/host", "a/dpu")
	p.want(Unknown, Fresh)
	for i := range 3 {
		p.o.Lease("a", HostCluster, time.Unix(int64(i), 1000))
	}
	if got := p.o.Known("a").Host; got != Unknown {
		t.Errorf("right after its Lease it is %s", got)
	}
}

// TestLeaseAfterTheDPUsReport: only a heartbeat that came after it contradicts it, and
// what the other carrier repeats did not come.
func TestLeaseAfterTheDPUsReport(t *testing.T) {
	p := newPlayer(t)
	p.leases(30, "a/host", "a/dpu")
	last := p.clock.Now().Add(-24 * time.Hour)
	p.silence()
	p.nodes["a"].Status.DPU.Host = &moorv1alpha1.HostObservation{Evidence: "no link"}
	p.want(Unknown, Fresh)
	p.clock.SetTime(p.clock.Now().Add(time.Second))
	p.o.Lease("a", HostCluster, last)
	p.want(Unknown, Fresh)
	p.o.Lease("a", HostCluster, last.Add(time.Second))
	p.want(Fresh, Fresh)
}

// TestAnotherDPU: what the one before was heard to say is no heartbeat of this one.
func TestAnotherDPU(t *testing.T) {
	p := newPlayer(t)
	p.leases(30, "a/host", "a/dpu")
	p.nodes["a"].Spec.DPUName = "another"
	p.nodes["a"].Status.DPU.Sequence = 77
	p.want(Fresh, Unknown)
	p.leases(5, "a/host", "a/dpu")
	p.want(Fresh, Unknown)
	p.leases(5, "a/host", "a/dpu")
	p.want(Fresh, Fresh)
}

// TestLeasesWakeNone: the heartbeats in Leases change no observation.
func TestLeasesWakeNone(t *testing.T) {
	p := newPlayer(t)
	p.leases(60, "a/host", "a/dpu")
	p.pass(60, "b/host", "b/dpu")
	p.leases(60, "a/host", "a/dpu")
	woken := p.woken(func(before, after Observation) bool { return before.Host != after.Host })
	p.leases(300, "a/host", "a/dpu")
	if got := woken(); len(got) != 0 {
		t.Errorf("Leases woke %v", got)
	}
}
