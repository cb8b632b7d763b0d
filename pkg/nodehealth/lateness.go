package nodehealth

import "time"

// Lateness is how long none of a node's witnesses has been heard, in parts of the time
// after which they count as silent together. It says what all nodes have in common,
// before it is known of any of them.
type Lateness int

// How late a node can be.
const (
	// Due: a witness may have been due since one was heard.
	Due Lateness = iota
	// JustHeard: one was heard within the last fifth. A witness is a period old at most
	// when its node falls silent, so that with the periods of DefaultSilence none of
	// those that fall silent with it is JustHeard when the first counts as silent.
	JustHeard
	// Late: none was heard for three quarters, within which each beats once.
	Late
)

// Lateness is that of a node. One with a witness that is not known is Due.
func (o *Observer) Lateness(name string) Lateness {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.entry(name)
	var last, heard time.Time
	for _, w := range []struct {
		witness
		by Cluster
	}{{e.host, HostCluster}, {e.kubelet, HostCluster}, {e.dpu, DPUCluster}} {
		if !w.known() {
			return Due
		}
		r := o.reception[w.by]
		last, heard = later(last, w.last, w.first, r.since), later(heard, r.heard)
	}
	switch silent := heard.Sub(last); {
	case silent < o.silence/5:
		return JustHeard
	case silent >= o.silence*3/4:
		return Late
	}
	return Due
}
