package hostprobe

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// unprobedAfter is after what time without a probe a host takes the link for silent:
	// three probes, well before the DPU takes the host for dead.
	unprobedAfter = 3 * Interval
	// unprobedEvery is how often it asks for signs then, so that a heartbeat falls into each
	// 0.3 s: snap-host-controller counts what comes that long before the DPU's word.
	unprobedEvery = 250 * time.Millisecond
	// unprobedSpare is for how much longer than a DPU's --host-timeout it does: what it says
	// after the DPU's word, with its next heartbeat, speaks against that too.
	unprobedSpare = time.Second
)

// Unprobed has a host give signs of life, as a heartbeat in the cluster network, while its DPU does
// not probe it any more, and for no longer than the DPU may take to call it dead. A host that has
// died does not, so a link that is cut is told from it before anything is done. It is safe for
// concurrent use.
type Unprobed struct {
	clock clock.WithTicker
	// lasts is how long it asks for them.
	lasts time.Duration

	mu sync.Mutex
	// asks are the channels of those that give signs.
	asks []chan struct{}
	// probed is when the last probe came; zero: none came, or the silence since is known.
	probed time.Time
	// until is when the signs end of a silence that is known.
	until time.Time
}

// NewUnprobed returns one for a DPU whose --host-timeout is timeout, by the machine's clock if
// c is nil.
func NewUnprobed(timeout time.Duration, c clock.WithTicker) *Unprobed {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Unprobed{clock: c, lasts: timeout + unprobedSpare}
}

// Asks returns a channel that is told of each sign that is due from now on. Each call returns
// another one: they wait for each other in nothing.
func (u *Unprobed) Asks() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := make(chan struct{}, 1)
	u.asks = append(u.asks, c)
	return c
}

// Probed says that a probe of the DPU came.
func (u *Unprobed) Probed() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.probed, u.until = u.clock.Now(), time.Time{}
}

// Run watches until ctx ends.
func (u *Unprobed) Run(ctx context.Context) {
	ticker := u.clock.NewTicker(unprobedEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		u.ask()
	}
}

// ask asks for signs, if they are due.
func (u *Unprobed) ask() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.due() {
		return
	}
	for _, c := range u.asks {
		select {
		case c <- struct{}{}:
		default: // the one before was not heard yet
		}
	}
}

// due reports whether signs are due. The time counts from when the silence is noticed: a
// host that was itself asleep is in doubt with its DPU as well.
func (u *Unprobed) due() bool {
	now := u.clock.Now()
	if !u.probed.IsZero() && now.Sub(u.probed) >= unprobedAfter {
		u.probed, u.until = time.Time{}, now.Add(u.lasts)
	}
	return now.Before(u.until)
}
