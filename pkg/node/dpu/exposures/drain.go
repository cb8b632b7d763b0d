package exposures

import (
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// forgetAfter is how long what is drained is kept in memory. What is asked for later
// than that is drained once more.
const forgetAfter = time.Hour

// drain tells when nothing is on its way to the storage any more that was sent by an
// incarnation of a SNAP service which ended without taking its devices away, or over a way
// that was lost. That was before this process was first asked, so the time counts from
// there, by this process's clock alone; a restart of the driver counts anew.
type drain struct {
	bound time.Duration
	clock clock.PassiveClock

	mu    sync.Mutex
	asked map[string]time.Time
}

func (d *drain) left(what string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	since, known := d.asked[what]
	if !known {
		since = now
		maps.DeleteFunc(d.asked, func(_ string, t time.Time) bool { return now.Sub(t) > d.bound+forgetAfter })
		d.asked[what] = since
	}
	return max(0, d.bound-now.Sub(since))
}

// Undrained is how long it takes until nothing is on its way to the storage any more of
// what had been sent for an attachment, as During names it.
func (e *Exposures) Undrained(attachment, sent string) time.Duration {
	return e.drain.left(attachment + "/" + sent)
}

// Drain is how long the storage may take over what it has received.
func (e *Exposures) Drain() time.Duration { return e.drain.bound }
