// Package liveness tells from the heartbeats of a DPUStorageNode who is heard.
//
// Only the change of a sequence counts, by the observer's own clock: the
// clocks of hosts and DPUs never matter. What was watched for too short a time
// is Unknown, never Stale; so is everything while the observer itself hears
// nobody. It decides nothing about what follows.
package liveness

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// DefaultTimeout is how long a beat counts: two periods of 10 s may be lost in
// part, the third is late.
const DefaultTimeout = 25 * time.Second

// Beat is how a heartbeat is.
type Beat string

// The states of a heartbeat.
const (
	// Unknown: not watched for long enough, or it never beat.
	Unknown Beat = "Unknown"
	// Fresh: it changed within the timeout.
	Fresh Beat = "Fresh"
	// Stale: it did not change for the timeout, while others did.
	Stale Beat = "Stale"
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
	// Sight is the DPU's last word about its host.
	Sight Sight
	// Words of the DPU about what it sees.
	Words string
}

// Observer remembers when beats changed. It may forget everything at any
// time: then all is Unknown until it has watched for long enough. It is safe
// for concurrent use.
type Observer struct {
	clock   clock.PassiveClock
	timeout time.Duration

	mu    sync.Mutex
	nodes map[string]*entry
	// heard is when any beat changed; since is the end of the last time in
	// which nobody was heard.
	heard, since time.Time
}

type entry struct {
	host, dpu half
	dead      bool
	deadAt    time.Time
}

type half struct {
	sequence    int64
	first, last time.Time
	changed     bool
}

// New returns an Observer. A timeout that is not positive is DefaultTimeout.
func New(c clock.PassiveClock, timeout time.Duration) *Observer {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return &Observer{clock: c, timeout: timeout, nodes: map[string]*entry{}}
}

// Observe takes notice of the node as it is now and says what is known. To
// call it twice with the same object is harmless.
func (o *Observer) Observe(node *moorv1alpha1.DPUStorageNode) Signs {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.clock.Now()
	e := o.nodes[node.Name]
	if e == nil {
		e = &entry{}
		o.nodes[node.Name] = e
	}
	host, dpu, sight := read(node)
	o.notice(&e.host, host, now)
	o.notice(&e.dpu, dpu, now)
	if dead := sight.Sight == SeenDead; dead != e.dead {
		e.dead, e.deadAt = dead, now
	}
	sight.Host, sight.DPU = o.judge(e.host, now), o.judge(e.dpu, now)
	if e.dead && sight.Host == Fresh && !e.host.last.After(e.deadAt) {
		sight.Host = Unknown
	}
	return sight
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
	for _, h := range []half{e.host, e.dpu} {
		if h.sequence == 0 || o.judge(h, now) == Stale {
			continue
		}
		left := max(o.timeout-now.Sub(later(h.last, h.first, o.since)), o.timeout/10)
		if wait == 0 || left < wait {
			wait = left
		}
	}
	return wait
}

// read takes the sequences and the DPU's word out of the object.
func read(node *moorv1alpha1.DPUStorageNode) (host, dpu int64, s Signs) {
	s.Sight = Unseen
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

// notice records a sequence. A long time in which nobody was heard means that
// the observer was blind, or stood still: silence in it says nothing.
func (o *Observer) notice(h *half, sequence int64, now time.Time) {
	switch {
	case sequence == 0 || sequence == h.sequence:
		return
	case h.sequence == 0:
		h.sequence, h.first = sequence, now
		return
	}
	h.sequence, h.last, h.changed = sequence, now, true
	if now.Sub(o.heard) > o.timeout*3/5 {
		o.since = now
	}
	o.heard = now
}

// judge measures silence up to when somebody was last heard, not up to now.
func (o *Observer) judge(h half, now time.Time) Beat {
	if h.sequence == 0 {
		return Unknown
	}
	if h.changed && !h.last.Before(o.since) {
		switch {
		case o.heard.Sub(h.last) >= o.timeout:
			return Stale
		case now.Sub(h.last) >= o.timeout:
			return Unknown
		}
		return Fresh
	}
	if o.heard.Sub(later(h.first, o.since)) >= o.timeout {
		return Stale
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
