// Package nodehealth tells from the heartbeats of hosts and DPUs, in their Leases and
// DPUStorageNodes, and from the Lease of the kubelet, who is heard.
//
// Only that a heartbeat changes counts, by the observer's own clock: the clocks
// of hosts and DPUs never matter. What was watched for too short a time is
// Unknown, never Stale; so is all that comes through an API server through
// which the observer itself hears nothing. It does not decide what is done.
package nodehealth

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// DefaultTimeout is how long a heartbeat counts. With a period of 10 s, two in a
// row may be late or lost.
const DefaultTimeout = 25 * time.Second

// DefaultSilence is when a witness counts as silent if the other witnesses of
// its host are silent too. A heartbeat with a period of 10 s is 3 s late then,
// which is enough time to repeat one that failed. It is never applied to one
// witness alone, and it is unlikely that all three are late by chance.
const DefaultSilence = 13 * time.Second

// Beat is how a heartbeat is.
type Beat string

// The states of a heartbeat.
const (
	// Unknown: not watched for long enough, or no heartbeat was ever seen.
	Unknown Beat = "Unknown"
	// Fresh: it changed a short while ago.
	Fresh Beat = "Fresh"
	// Quiet: it is late, but not yet for the timeout.
	Quiet Beat = "Quiet"
	// Stale: it did not change for the timeout, while others did.
	Stale Beat = "Stale"
)

// Heard reports whether a witness counts as heard when judged alone.
func (b Beat) Heard() bool { return b == Fresh || b == Quiet }

// Silent reports whether a witness counts as silent if the other witnesses of
// its host are silent too.
func (b Beat) Silent() bool { return b == Quiet || b == Stale }

// Cluster says through which API server a heartbeat comes.
type Cluster int

// The clusters.
const (
	// HostCluster carries the heartbeats of hosts and kubelets.
	HostCluster Cluster = iota
	// DPUCluster carries the heartbeats of DPUs.
	DPUCluster
	clusters
)

// HostSeen is what a DPU last reported of its host.
type HostSeen string

// What a DPU can report of its host.
const (
	// Unseen: the DPU does not observe its host.
	Unseen HostSeen = "Unseen"
	// SeenAlive: the DPU sees its host alive.
	SeenAlive HostSeen = "Alive"
	// SeenDead: the DPU sees its host dead.
	SeenDead HostSeen = "Dead"
)

// Observation is what is known of a host and its DPU at one moment.
type Observation struct {
	// Host is the heartbeat of the host's plugin. While the DPU reports that the
	// host is dead, only a heartbeat that came in the silence or after the report is Fresh.
	Host Beat
	// DPU is the heartbeat of the DPU's agent.
	DPU Beat
	// Kubelet is the Lease that the kubelet renews every 10 s. Of it, too, only what came
	// after the DPU's report that the host is dead is Fresh.
	Kubelet Beat
	// HostSeen is what the DPU last reported of its host.
	HostSeen HostSeen
	// Message says what the DPU concluded that from.
	Message string
	// Attested: a DPU that was heard has reported that the host is dead, and no
	// heartbeat of the host or its kubelet came since, though the DPU may be silent by now.
	Attested bool
	// HostUnheard and DPUUnheard: the heartbeat has not changed since it was read
	// first, as after a start of the observer.
	HostUnheard, DPUUnheard bool
	// Young: both are watched for so short a time that this says nothing of them.
	Young bool
	// ZeroTrust: this host sends no heartbeats, so Host is always Unknown.
	ZeroTrust bool
}

// Observer remembers when heartbeats changed. It may forget everything at any
// time: then all is Unknown until it has watched for long enough. It is safe
// for concurrent use.
type Observer struct {
	clock            clock.PassiveClock
	timeout, silence time.Duration

	mu    sync.Mutex
	nodes map[string]*entry
	// dpus are the DPUs by their own names: the one that holds a volume need not be the
	// one that a host has now.
	dpus        map[string]*witness
	reception   [clusters]reception
	subscribers []change
}

// reception is how well the observer hears through one API server.
type reception struct {
	// heard is when anything was heard last, since the end of the last time in
	// which nothing was.
	heard, since time.Time
}

type entry struct {
	// observed: there is a DPUStorageNode, and told is what the subscribers know of it.
	observed bool
	told     Observation
	// zeroTrust: see Observation.
	zeroTrust bool
	// dpuName is the DPU that dpu is.
	dpuName            string
	host, dpu, kubelet witness
	// seen and message are what the DPU reported last, deadAt when it began to
	// report that the host is dead.
	seen    HostSeen
	message string
	deadAt  time.Time
}

// carrier is where a heartbeat stands. Hosts and DPUs write theirs into a Lease, and now
// and then into the DPUStorageNode; older ones, and DPUs that promise something with
// each, into the latter alone.
type carrier int

const (
	byObject carrier = iota
	byLease
	carriers
)

// witness is one sender of heartbeats. Only that a value changes counts, each for itself:
// what one carrier repeats is no sign of life when the other has changed. 0 is none.
type witness struct {
	values [carriers]int64
	// first is when a value was read first, or since when one is waited for; last is when
	// one changed last.
	first, last time.Time
	changed     bool
}

// known reports whether the witness has ever beaten.
func (w witness) known() bool { return w.values != [carriers]int64{} }

// New returns an Observer. A timeout or silence that is not positive is the
// default; silence is not longer than the timeout.
func New(c clock.PassiveClock, timeout, silence time.Duration) *Observer {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	if silence <= 0 {
		silence = DefaultSilence
	}
	return &Observer{clock: c, timeout: timeout, silence: min(silence, timeout), nodes: map[string]*entry{}, dpus: map[string]*witness{}}
}

// Observe records the heartbeats in the node as it is now, and returns what is
// known. To call it twice with the same object is harmless.
func (o *Observer) Observe(node *moorv1alpha1.DPUStorageNode) Observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, e := o.clock.Now(), o.entry(node.Name)
	host, dpu, reported := read(node)
	if e.zeroTrust = reported.ZeroTrust; e.zeroTrust {
		e.host, host = witness{}, 0 // an earlier heartbeat proves nothing, nor does its silence
	}
	if e.dpuName != node.Spec.DPUName {
		e.dpuName, e.dpu = node.Spec.DPUName, witness{} // another DPU's heartbeat proves nothing of this one
	}
	o.record(&e.host, HostCluster, byObject, host, now)
	o.record(&e.dpu, DPUCluster, byObject, dpu, now)
	if reported.HostSeen == SeenDead && e.seen != SeenDead {
		e.deadAt = now
	}
	e.seen, e.message, e.observed = reported.HostSeen, reported.Message, true
	out := o.observation(e, now)
	o.tell(node.Name, e, out)
	return out
}

// Known returns what is known of a node that was observed before.
func (o *Observer) Known(name string) Observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.observation(o.entry(name), o.clock.Now())
}

func (o *Observer) observation(e *entry, now time.Time) Observation {
	out := Observation{
		Host: o.beat(e.host, HostCluster, now), Kubelet: o.beat(e.kubelet, HostCluster, now),
		DPU: o.beat(e.dpu, DPUCluster, now), HostSeen: e.seen, Message: e.message, ZeroTrust: e.zeroTrust,
	}
	out.HostUnheard, out.DPUUnheard = e.host.unheard(), e.dpu.unheard()
	// Who is silent is Stale by then, if the observer can hear.
	out.Young = now.Sub(later(e.host.first, e.dpu.first)) < o.timeout+o.silence/2
	out.Attested = e.seen == SeenDead && e.dpu.changed && !e.refutes(e.host) && !e.refutes(e.kubelet)
	if e.seen == SeenDead {
		out.Host, out.Kubelet = e.since(e.host, out.Host), e.since(e.kubelet, out.Kubelet)
	}
	return out
}

// linkSilence is how long before a DPU reports that its host is dead the link between them
// has been silent at the least: snap-node-driver takes no --host-timeout below 0.4 s. Who
// beats within it lives on the other side of a link that is cut. A host does so when it is
// not probed any more, see package hostprobe.
const linkSilence = 300 * time.Millisecond

// refutes reports whether a heartbeat of the host speaks against the DPU's report that it is
// dead: one that came before the silence that was reported says nothing.
func (e *entry) refutes(w witness) bool { return w.last.After(e.deadAt.Add(-linkSilence)) }

// since is a heartbeat of the host beside the DPU's report that it is dead.
func (e *entry) since(w witness, b Beat) Beat {
	if b == Fresh && !e.refutes(w) {
		return Unknown
	}
	return b
}

// Kubelet records the Lease of a kubelet. When it was renewed is by the kubelet's
// clock, so only that it changes counts.
func (o *Observer) Kubelet(name string, renewed time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, e := o.clock.Now(), o.entry(name)
	o.record(&e.kubelet, HostCluster, byLease, renewed.UnixMicro(), now)
	o.tell(name, e, o.observation(e, now))
}

// Lease records the Lease of a host, or that of its DPU, by the cluster that it is in.
// When it was renewed is by another machine's clock, so only that it changes counts. A
// ZeroTrust host has none that counts.
func (o *Observer) Lease(host string, in Cluster, renewed time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, e := o.clock.Now(), o.entry(host)
	switch {
	case in == DPUCluster:
		o.record(&e.dpu, in, byLease, renewed.UnixMicro(), now)
	case !e.zeroTrust:
		o.record(&e.host, in, byLease, renewed.UnixMicro(), now)
	}
	o.tell(host, e, o.observation(e, now))
}

// SelfHeartbeat records that a heartbeat of the observer's own process was
// watched: that API server takes writes and its watches deliver them.
func (o *Observer) SelfHeartbeat(c Cluster) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hear(c, o.clock.Now())
}

func (o *Observer) entry(name string) *entry {
	e := o.nodes[name]
	if e == nil {
		e = &entry{seen: Unseen}
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

// EarliestSilence is after what time all witnesses of a node may be silent
// together; 0 if none was ever heard. Once they are late it returns a short time,
// as silence counts as soon as a witness of another node is heard.
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
		return o.ReviewPeriod()
	}
	return o.timeout
}

// read takes the sequence numbers, and what the DPU reports of its host, out of
// the object.
func read(node *moorv1alpha1.DPUStorageNode) (host, dpu int64, reported Observation) {
	reported.HostSeen, reported.ZeroTrust = Unseen, node.Spec.HostMode == moorv1alpha1.ZeroTrust
	if h := node.Status.Host; h != nil {
		host = h.Sequence
	}
	d := node.Status.DPU
	if d == nil {
		return host, 0, reported
	}
	if d.Host != nil {
		reported.Message, reported.HostSeen = d.Host.Evidence, SeenDead
		if d.Host.Alive {
			reported.HostSeen = SeenAlive
		}
	}
	return host, d.Sequence, reported
}

// record records a heartbeat. What a carrier has when it is read first may be of any
// time.
func (o *Observer) record(w *witness, c Cluster, by carrier, value int64, now time.Time) {
	before := w.values[by]
	if value == 0 || value == before {
		return
	}
	if !w.known() {
		w.first = now
	}
	if w.values[by] = value; before != 0 {
		w.last, w.changed = now, true
		o.hear(c, now)
	}
}

// hear records that something came through an API server. Its own heartbeat is
// due every second. If nothing came for a long time, the observer could not hear,
// or it and all others stood still: silence in that time means nothing, and is
// measured from now.
func (o *Observer) hear(c Cluster, now time.Time) {
	r := &o.reception[c]
	if now.Sub(r.heard) > o.silence/2 {
		r.since = now
	}
	r.heard = now
}

// beat is the state of a heartbeat. Silence is measured up to when anything was
// last heard through that API server, not up to now.
func (o *Observer) beat(w witness, c Cluster, now time.Time) Beat {
	if w.first.IsZero() {
		return Unknown
	}
	r := o.reception[c]
	known := w.changed && !w.last.Before(r.since)
	from := w.last
	if !known {
		from = later(w.first, r.since)
	}
	switch silent := r.heard.Sub(from); {
	case silent >= o.timeout:
		return Stale
	case known && now.Sub(w.last) < o.silence:
		return Fresh
	case known && now.Sub(w.last) >= o.timeout && now.Sub(r.heard) > o.silence/2: // nothing is heard
		return Unknown
	case silent >= o.silence:
		return Quiet
	case known:
		return Fresh
	}
	return Unknown
}

func (w witness) unheard() bool { return w.known() && !w.changed }

func later(first time.Time, more ...time.Time) time.Time {
	for _, t := range more {
		if t.After(first) {
			first = t
		}
	}
	return first
}
