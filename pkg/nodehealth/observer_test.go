package nodehealth

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// player feeds an observer with nodes "a" and "b".
type player struct {
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	o     *Observer
	nodes map[string]*moorv1alpha1.DPUStorageNode
}

func newPlayer(t *testing.T) *player {
	p := &player{t: t, clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)), nodes: map[string]*moorv1alpha1.DPUStorageNode{}}
	p.o = New(p.clock, 25*time.Second, 15*time.Second)
	for _, name := range []string{"a", "b"} {
		p.nodes[name] = &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: moorv1alpha1.DPUStorageNodeStatus{
			Host: &moorv1alpha1.HostState{Heartbeat: moorv1alpha1.Heartbeat{Sequence: 5}},
			DPU:  &moorv1alpha1.DPUState{Heartbeat: moorv1alpha1.Heartbeat{Sequence: 5}},
		}}
		p.o.Observe(p.nodes[name])
	}
	return p
}

// pass lets seconds go by in steps of 5 in which those named send heartbeats. If
// any does, both API servers work.
func (p *player) pass(seconds int, beating ...string) {
	for range seconds / 5 {
		p.clock.SetTime(p.clock.Now().Add(5 * time.Second))
		if len(beating) > 0 {
			p.o.SelfHeartbeat(HostCluster)
			p.o.SelfHeartbeat(DPUCluster)
		}
		for _, who := range beating {
			if who[2:] == "kubelet" {
				p.o.Kubelet(who[:1], p.clock.Now().Add(-24*time.Hour))
				continue
			}
			n := p.nodes[who[:1]]
			if who[2:] == "host" {
				n.Status.Host.Sequence++
			} else {
				n.Status.DPU.Sequence++
			}
		}
		p.o.Observe(p.nodes["a"])
		p.o.Observe(p.nodes["b"])
	}
}

func (p *player) want(host, dpu Beat) {
	p.t.Helper()
	got := p.o.Observe(p.nodes["a"])
	if got.Host != host || got.DPU != dpu {
		p.t.Fatalf("host %s, DPU %s; want %s, %s", got.Host, got.DPU, host, dpu)
	}
}

func TestBeats(t *testing.T) {
	p := newPlayer(t)
	p.want(Unknown, Unknown)
	p.pass(5, "a/host", "b/host")
	p.want(Fresh, Unknown)
	p.pass(10, "a/host", "b/host")
	p.want(Fresh, Unknown)
	p.pass(5, "a/host", "b/host")
	p.want(Fresh, Quiet)
	p.pass(10, "a/host", "b/host")
	p.want(Fresh, Stale)
	p.pass(5, "a/dpu", "b/host")
	p.want(Fresh, Fresh)
	p.pass(5, "a/dpu")
	p.want(Fresh, Fresh)
	p.pass(5, "a/dpu")
	p.want(Quiet, Fresh)
	p.pass(10, "a/dpu")
	p.want(Stale, Fresh)
	p.pass(5, "a/host", "a/dpu")
	p.want(Fresh, Fresh)
}

// TestNothingHeard: if all are silent, it is the observer that cannot hear.
func TestNothingHeard(t *testing.T) {
	p := newPlayer(t)
	p.pass(30, "a/host", "a/dpu", "b/host")
	p.want(Fresh, Fresh)
	p.pass(600)
	p.want(Unknown, Unknown)
	p.pass(5, "b/host")
	p.want(Unknown, Unknown)
	p.pass(10, "b/host")
	p.want(Unknown, Unknown)
	p.pass(5, "b/host")
	p.want(Quiet, Quiet)
	p.pass(10, "b/host")
	p.want(Stale, Stale)
}

// TestSilenceGrows: who falls silent is Fresh, then Quiet, then Stale, also between two of the
// observer's own heartbeats: to know nothing in between would end what was begun.
func TestSilenceGrows(t *testing.T) {
	p := newPlayer(t)
	p.pass(60, "a host", "a dpu", "b dpu")
	was, order := Fresh, map[Beat]int{Fresh: 0, Quiet: 1, Stale: 2}
	for tenth := range 400 {
		p.clock.SetTime(p.clock.Now().Add(100 * time.Millisecond))
		if tenth%10 == 5 {
			p.o.SelfHeartbeat(HostCluster)
			p.o.SelfHeartbeat(DPUCluster)
		}
		got := p.o.Known("a")
		if at, known := order[got.DPU]; !known || at < order[was] || got.DPU != got.Host {
			t.Fatalf("after %d ms of silence the DPU is %v and the host %v, after %v", 100*(tenth+1), got.DPU, got.Host, was)
		}
		was = got.DPU
	}
	if was != Stale {
		t.Errorf("after 40 s of silence it is %v", was)
	}
}

// TestStandstill: when all stand still, the observer too, its own heartbeat may be
// heard before the others. A short pause changes nothing.
func TestStandstill(t *testing.T) {
	for pause, want := range map[time.Duration]Beat{7 * time.Second: Quiet, 8 * time.Second: Unknown} {
		p := newPlayer(t)
		p.pass(30, "a/host", "a/dpu")
		for _, quiet := range []time.Duration{7 * time.Second, time.Second, pause} {
			p.clock.SetTime(p.clock.Now().Add(quiet))
			p.o.SelfHeartbeat(HostCluster)
			p.o.SelfHeartbeat(DPUCluster)
		}
		p.want(want, want)
	}
}

// TestDeafOnOneSide: what comes through one API server says nothing of what
// would come through the other.
func TestDeafOnOneSide(t *testing.T) {
	p := newPlayer(t)
	p.pass(20, "a/host", "a/dpu", "a/kubelet")
	for range 30 {
		p.clock.SetTime(p.clock.Now().Add(2 * time.Second))
		p.o.SelfHeartbeat(DPUCluster)
	}
	p.want(Unknown, Stale)
	if got := p.o.Known("a").Kubelet; got != Unknown {
		t.Errorf("kubelet %s", got)
	}
	p.o.SelfHeartbeat(HostCluster)
	p.want(Unknown, Stale)
}

// TestKubelet: any renewal counts, whatever clock it was stamped by.
func TestKubelet(t *testing.T) {
	p := newPlayer(t)
	p.pass(15, "a/kubelet", "b/host")
	is := func(want Beat) {
		t.Helper()
		if got := p.o.Known("a").Kubelet; got != want {
			t.Fatalf("kubelet %s, want %s", got, want)
		}
	}
	is(Fresh)
	p.pass(10, "b/host")
	is(Fresh)
	p.pass(5, "b/host")
	is(Quiet)
	p.pass(10, "b/host")
	is(Stale)
	p.o.Kubelet("a", time.Unix(1, 0))
	is(Fresh)
	p.o.Kubelet("a", time.Unix(1, 0))
	p.pass(20, "b/host")
	is(Quiet)
}

// TestEarliestSilence: the moment at which all may be silent is known beforehand.
func TestEarliestSilence(t *testing.T) {
	p := newPlayer(t)
	if wait := p.o.EarliestSilence("none"); wait != 0 {
		t.Errorf("looks again in %s at no host", wait)
	}
	p.pass(10, "a/host", "a/dpu")
	p.pass(5, "a/dpu", "b/host")
	if wait := p.o.EarliestSilence("a"); wait != 15*time.Second {
		t.Errorf("look again in %s", wait)
	}
	p.pass(10, "b/host")
	if wait := p.o.EarliestSilence("a"); wait != 5*time.Second {
		t.Errorf("look again in %s", wait)
	}
	p.pass(10, "b/host")
	if wait := p.o.EarliestSilence("a"); wait != 500*time.Millisecond {
		t.Errorf("look again in %s", wait)
	}
}

// TestRestart: a new observer takes no host for dead.
func TestRestart(t *testing.T) {
	p := newPlayer(t)
	p.pass(60, "b/host")
	p.want(Stale, Stale)
	p.o = New(p.clock, 25*time.Second, 15*time.Second)
	p.want(Unknown, Unknown)
	p.pass(10, "b/host")
	p.want(Unknown, Unknown)
}

// TestUnheard: until it changes, which says nothing until the timeout is over.
func TestUnheard(t *testing.T) {
	p := newPlayer(t)
	is := func(host, dpu, young bool) {
		t.Helper()
		if got := p.o.Known("a"); got.HostUnheard != host || got.DPUUnheard != dpu || got.Young != young {
			t.Errorf("host unheard %v, DPU unheard %v, young %v; want %v, %v, %v", got.HostUnheard, got.DPUUnheard, got.Young, host, dpu, young)
		}
	}
	is(true, true, true)
	p.pass(5, "a/host", "b/host")
	is(false, true, true)
	p.pass(25, "b/host")
	is(false, true, true)
	p.want(Stale, Stale)
	p.pass(5, "b/host")
	is(false, true, false)
	if got := p.o.Known("c"); got.HostUnheard || got.DPUUnheard || got.Young {
		t.Errorf("what never beat is %+v", got)
	}
}

func TestNeverBeat(t *testing.T) {
	p := newPlayer(t)
	p.nodes["a"].Status = moorv1alpha1.DPUStorageNodeStatus{}
	p.o.Forget("a")
	p.pass(100, "b/host")
	p.want(Unknown, Unknown)
}

// TestDeadByItsDPU: a heartbeat from before the DPU's report does not contradict it.
func TestDeadByItsDPU(t *testing.T) {
	p := newPlayer(t)
	p.pass(10, "a/host", "a/dpu")
	p.silence()
	p.nodes["a"].Status.DPU.Host = &moorv1alpha1.HostObservation{Evidence: "no link"}
	p.want(Unknown, Fresh)
	if got := p.o.Observe(p.nodes["a"]); got.HostSeen != SeenDead || got.Message != "no link" {
		t.Errorf("observed %+v", got)
	}
	p.pass(5, "a/host", "a/dpu")
	p.want(Fresh, Fresh)
	p.nodes["a"].Status.DPU.Host.Alive = true
	if got := p.o.Observe(p.nodes["a"]); got.HostSeen != SeenAlive || got.Host != Fresh {
		t.Errorf("observed %+v", got)
	}
}

// TestAKubeletBesideTheWordOfItsDPU: as of the host, only what its kubelet renews after the
// DPU's word that the host is dead is a sign of life.
func TestAKubeletBesideTheWordOfItsDPU(t *testing.T) {
	p := newPlayer(t)
	p.pass(10, "a/host", "a/dpu")
	p.o.Kubelet("a", p.clock.Now())
	p.pass(5, "a/host", "a/dpu")
	p.o.Kubelet("a", p.clock.Now())
	if got := p.o.Observe(p.nodes["a"]); got.Kubelet != Fresh {
		t.Fatalf("observed %+v", got)
	}
	p.silence()
	p.nodes["a"].Status.DPU.Host = &moorv1alpha1.HostObservation{Evidence: "no link"}
	if got := p.o.Observe(p.nodes["a"]); got.Kubelet != Unknown {
		t.Errorf("the beat is from before the word: %+v", got)
	}
	p.pass(5, "a/dpu")
	p.o.Kubelet("a", p.clock.Now())
	if got := p.o.Observe(p.nodes["a"]); got.Kubelet != Fresh || got.Host != Unknown {
		t.Errorf("the kubelet has beaten since, the host has not: %+v", got)
	}
	p.pass(15, "a/dpu")
	if got := p.o.Observe(p.nodes["a"]); !got.Kubelet.Silent() || !got.Host.Silent() {
		t.Errorf("nothing was heard for the silence: %+v", got)
	}
}

// TestABeatInTheSilence: the link is silent before the DPU says that its host is dead; what beats in that
// time lives.
func TestABeatInTheSilence(t *testing.T) {
	for ms, want := range map[int]Beat{250: Fresh, 299: Fresh, 300: Unknown, 900: Unknown} {
		p := newPlayer(t)
		p.pass(10, "a/host", "a/dpu", "a/kubelet")
		p.silence()
		p.nodes["a"].Status.Host.Sequence++
		p.o.Observe(p.nodes["a"])
		p.o.Kubelet("a", p.clock.Now())
		p.clock.SetTime(p.clock.Now().Add(time.Duration(ms) * time.Millisecond))
		p.nodes["a"].Status.DPU.Host = &moorv1alpha1.HostObservation{Evidence: "no link"}
		if got := p.o.Observe(p.nodes["a"]); got.Host != want || got.Kubelet != want || got.Attested != (want == Unknown) {
			t.Errorf("%d ms after both have beaten: %+v", ms, got)
		}
	}
}

// TestAttested: that a DPU saw its host dead stands while nothing is heard of the host,
// also when the DPU falls silent; and only if the DPU was heard.
func TestAttested(t *testing.T) {
	for name, tc := range map[string]struct {
		play func(p *player)
		want bool
	}{
		"while it is heard":       {func(p *player) { p.pass(5, "a/dpu", "b/host") }, true},
		"it is silent":            {func(p *player) { p.pass(60, "b/host") }, true},
		"the host beats after it": {func(p *player) { p.pass(5, "a/host"); p.pass(60, "b/host") }, false},
		"the kubelet does":        {func(p *player) { p.pass(5, "a/kubelet"); p.pass(60, "b/host") }, false},
		"it sees it alive again":  {func(p *player) { p.dead(false); p.pass(5, "a/dpu") }, false},
		"and dead again": {func(p *player) {
			p.pass(5, "a/host")
			p.dead(false)
			p.pass(5, "a/dpu")
			p.dead(true)
			p.pass(5, "a/dpu")
		}, true},
		"read, and never heard": {func(p *player) { p.o = New(p.clock, 25*time.Second, 15*time.Second); p.pass(60, "b/host") }, false},
		"read, and then heard": {func(p *player) {
			p.o = New(p.clock, 25*time.Second, 15*time.Second)
			p.pass(5, "a/dpu")
			p.pass(5, "a/dpu")
		}, true},
		"the word of another DPU": {func(p *player) { p.nodes["a"].Spec.DPUName = "another"; p.pass(60, "b/host") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlayer(t)
			p.pass(30, "a/host", "a/dpu", "a/kubelet", "b/host")
			p.dead(true)
			p.pass(5, "b/host")
			tc.play(p)
			if got := p.o.Observe(p.nodes["a"]); got.Attested != tc.want {
				t.Errorf("%+v", got)
			}
		})
	}
}

// silence lets the time pass that a DPU listens to a link before it calls its host dead.
func (p *player) silence() { p.clock.SetTime(p.clock.Now().Add(time.Second)) }

// dead lets the DPU of a see its host dead, or alive.
func (p *player) dead(dead bool) {
	p.silence()
	p.nodes["a"].Status.DPU.Host = &moorv1alpha1.HostObservation{Alive: !dead}
	p.o.Observe(p.nodes["a"])
}
