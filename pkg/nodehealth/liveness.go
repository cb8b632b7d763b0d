// Package nodehealth tells from the heartbeats of a DPUStorageNode, and from the
// Lease of the kubelet, who is heard.
//
// Only the change of a sign counts, by the observer's own clock: the clocks of
// hosts and DPUs never matter. What was watched for too short a time is
// Unknown, never Stale; so is all that comes through an API server through
// which the observer itself hears nobody. It decides nothing about what follows.
package nodehealth

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// DefaultTimeout is how long a beat counts: two periods of 10 s may be lost in
// part, the third is late.
const DefaultTimeout = 25 * time.Second

// DefaultSilence is when a witness counts as silent among others that are: a
// beat that is due after 10 s is late by three, time enough for one that failed
// to be tried again. One witness alone is not judged by it; that all three of a
// host are that late at once, by chance, takes three separate misfortunes.
const DefaultSilence = 13 * time.Second

// Beat is how a heartbeat is.
type Beat string

// The states of a heartbeat.
const (
	// Unknown: not watched for long enough, or it never beat.
	Unknown Beat = "Unknown"
	// Fresh: it changed a short while ago.
	Fresh Beat = "Fresh"
	// Quiet: it is late, but not yet for the timeout.
	Quiet Beat = "Quiet"
	// Stale: it did not change for the timeout, while others did.
	Stale Beat = "Stale"
)

// Heard reports whether a witness counts as heard when it alone is asked.
func (b Beat) Heard() bool { return b == Fresh || b == Quiet }

// Silent reports whether a witness counts as silent among others that are.
func (b Beat) Silent() bool { return b == Quiet || b == Stale }

// Cluster is whose API server a sign comes through.
type Cluster int

// The clusters.
const (
	// HostCluster carries the beats of hosts and kubelets.
	HostCluster Cluster = iota
	// DPUCluster carries the beats of DPUs.
	DPUCluster
	clusters
)

// Sight is what a DPU last said of its host.
type Sight string

// What a DPU can say of its host.
const (
	// Unseen: the DPU does not look.
	Unseen Sight = "Unseen"
	// SeenAlive: the DPU sees its host alive.
	SeenAlive Sight = "Alive"
	// SeenDead: the DPU sees its host dead.
	SeenDead Sight = "Dead"
)

// Signs are the signs of life of a host and its DPU.
type Signs struct {
	// Host is the beat of the host's plugin. While the DPU says that the host
	// is dead, only a beat that came after that word is Fresh.
	Host Beat
	// DPU is the beat of the DPU's agent.
	DPU Beat
	// Kubelet is the Lease that the kubelet renews every 10 s.
	Kubelet Beat
	// Sight is the DPU's last word about its host.
	Sight Sight
	// Words of the DPU about what it sees.
	Words string
	// ZeroTrust: nobody beats for this host, so Host is always Unknown.
	ZeroTrust bool
}

// Observer remembers when beats changed. It may forget everything at any
// time: then all is Unknown until it has watched for long enough. It is safe
// for concurrent use.
type Observer struct {
	clock            clock.PassiveClock
	timeout, silence time.Duration

	mu    sync.Mutex
	nodes map[string]*entry
	ears  [clusters]ear
}

// ear is how well the observer hears through one API server: when anything was
// heard last, and the end of the last time in which nothing was.
type ear struct {
	heard, since time.Time
}

type entry struct {
	// zeroTrust: see Signs.
	zeroTrust          bool
	host, dpu, kubelet half
	// sight and words are what the DPU said last, deadAt when it began to
	// say that the host is dead.
	sight  Sight
	words  string
	deadAt time.Time
}

// half is one witness. What its sign is does not matter, only that it changes;
// 0 is none.
type half struct {
	sign        int64
	first, last time.Time
	changed     bool
}

// New returns an Observer. A timeout or silence that is not positive is the
// default; silence is not longer than the timeout.
func New(c clock.PassiveClock, timeout, silence time.Duration) *Observer {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	if silence <= 0 {
		silence = DefaultSilence
	}
	return &Observer{clock: c, timeout: timeout, silence: min(silence, timeout), nodes: map[string]*entry{}}
}

// Observe takes notice of the node as it is now and says what is known. To
// call it twice with the same object is harmless.
func (o *Observer) Observe(node *moorv1alpha1.DPUStorageNode) Signs {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, e := o.clock.Now(), o.entry(node.Name)
	host, dpu, seen := read(node)
	if e.zeroTrust = seen.ZeroTrust; e.zeroTrust {
		e.host, host = half{}, 0 // a beat of before proves nothing, nor does its silence
	}
	o.notice(&e.host, HostCluster, host, now)
	o.notice(&e.dpu, DPUCluster, dpu, now)
	if seen.Sight == SeenDead && e.sight != SeenDead {
		e.deadAt = now
	}
	e.sight, e.words = seen.Sight, seen.Words
	return o.signs(e, now)
}

// Known says what is known of a node that was observed before.
func (o *Observer) Known(name string) Signs {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.signs(o.entry(name), o.clock.Now())
}

func (o *Observer) signs(e *entry, now time.Time) Signs {
	out := Signs{
		Host: o.judge(e.host, HostCluster, now), Kubelet: o.judge(e.kubelet, HostCluster, now),
		DPU: o.judge(e.dpu, DPUCluster, now), Sight: e.sight, Words: e.words, ZeroTrust: e.zeroTrust,
	}
	if e.sight == SeenDead && out.Host == Fresh && !e.host.last.After(e.deadAt) {
		out.Host = Unknown
	}
	return out
}

// Kubelet takes notice of the Lease of a kubelet, renewed at a time by the
// kubelet's clock, which counts only in that it changes.
func (o *Observer) Kubelet(name string, renewed time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.notice(&o.entry(name).kubelet, HostCluster, renewed.UnixMicro(), o.clock.Now())
}

// Echo takes notice that something which the observer itself had written has
// come back to it: that API server takes writes and tells of them.
func (o *Observer) Echo(c Cluster) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hear(c, o.clock.Now())
}

func (o *Observer) entry(name string) *entry {
	e := o.nodes[name]
	if e == nil {
		e = &entry{sight: Unseen}
		o.nodes[name] = e
	}
	return e
}

// Forget drops what is known of a node.
func (o *Observer) Forget(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.nodes, name)
}

// Again is after what time the answer for a node may change without any event
// of its own; 0 if it cannot.
func (o *Observer) Again(name string) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.nodes[name]
	if e == nil {
		return 0
	}
	now, wait := o.clock.Now(), time.Duration(0)
	for c, h := range map[Cluster]half{HostCluster: e.host, DPUCluster: e.dpu} {
		if h.sign == 0 || o.judge(h, c, now) == Stale {
			continue
		}
		left := max(o.timeout-now.Sub(later(h.last, h.first, o.ears[c].since)), o.timeout/10)
		if wait == 0 || left < wait {
			wait = left
		}
	}
	return wait
}

// EarliestSilence is after what time all witnesses of a node may be silent together; 0 if
// none was ever heard. Once they are late it is worth to look again soon, as
// what is left to come is that somebody else is heard; when they are late for
// the timeout, that is told by others.
func (o *Observer) EarliestSilence(name string) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.nodes[name]
	if e == nil {
		return 0
	}
	last := later(e.host.last, e.host.first, e.dpu.last, e.dpu.first, e.kubelet.last, e.kubelet.first)
	if last.IsZero() {
		return 0
	}
	switch age := o.clock.Since(last); {
	case age < o.silence:
		return o.silence - age
	case age < 2*o.timeout:
		return o.silence / 30
	}
	return o.timeout
}

// read takes the sequences and the DPU's word out of the object.
func read(node *moorv1alpha1.DPUStorageNode) (host, dpu int64, s Signs) {
	s.Sight, s.ZeroTrust = Unseen, node.Spec.HostMode == moorv1alpha1.ZeroTrust
	if h := node.Status.Host; h != nil {
		host = h.Sequence
	}
	d := node.Status.DPU
	if d == nil {
		return host, 0, s
	}
	if d.Host != nil {
		s.Words, s.Sight = d.Host.Evidence, SeenDead
		if d.Host.Alive {
			s.Sight = SeenAlive
		}
	}
	return host, d.Sequence, s
}

// notice records a sign.
func (o *Observer) notice(h *half, c Cluster, sign int64, now time.Time) {
	switch {
	case sign == 0 || sign == h.sign:
		return
	case h.sign == 0:
		h.sign, h.first = sign, now
		return
	}
	h.sign, h.last, h.changed = sign, now, true
	o.hear(c, now)
}

// hear: a long time in which nothing was heard, though something is due every
// second, means that the observer was blind, or that it and all others stood
// still: silence in it says nothing, and is measured anew.
func (o *Observer) hear(c Cluster, now time.Time) {
	e := &o.ears[c]
	if now.Sub(e.heard) > o.silence/2 {
		e.since = now
	}
	e.heard = now
}

// judge measures silence up to when anything was last heard, not up to now.
func (o *Observer) judge(h half, c Cluster, now time.Time) Beat {
	if h.sign == 0 {
		return Unknown
	}
	e := o.ears[c]
	known := h.changed && !h.last.Before(e.since)
	from := h.last
	if !known {
		from = later(h.first, e.since)
	}
	switch silent := e.heard.Sub(from); {
	case silent >= o.timeout:
		return Stale
	case known && now.Sub(h.last) < o.silence:
		return Fresh
	case known && now.Sub(h.last) >= o.timeout:
		return Unknown
	case silent >= o.silence:
		return Quiet
	case known:
		return Fresh
	}
	return Unknown
}

func later(first time.Time, more ...time.Time) time.Time {
	for _, t := range more {
		if t.After(first) {
			first = t
		}
	}
	return first
}
