package admission

import (
	"sync"
	"time"
)

// Limits bound what all DPUs together do with a volume, reads and writes alike;
// 0 is no limit.
type Limits struct {
	BytesPerSecond int64
	IOPS           int64
}

// burst is for how long a volume that was idle may be faster than its limits.
const burst = 100 * time.Millisecond

// Limiter delays I/O so that it keeps to the limits: each request takes its
// share of time, and the next one begins where that ends. The zero value limits
// nothing.
type Limiter struct {
	mu     sync.Mutex
	limits Limits
	// bytes and ops are when what was admitted so far is paid for.
	bytes, ops time.Time
}

// Set changes the limits, for what comes from now on.
func (l *Limiter) Set(limits Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limits = limits
}

// reserve takes the time of one request of n bytes, and returns how long after
// now it may begin.
func (l *Limiter) reserve(now time.Time, n int64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var wait time.Duration
	if rate := l.limits.BytesPerSecond; rate > 0 {
		wait = max(wait, take(&l.bytes, now, float64(n)/float64(rate)))
	}
	if rate := l.limits.IOPS; rate > 0 {
		wait = max(wait, take(&l.ops, now, 1/float64(rate)))
	}
	return wait
}

// take moves paid on by seconds and returns how far it was ahead of now before.
func take(paid *time.Time, now time.Time, seconds float64) time.Duration {
	if idle := now.Add(-burst); paid.Before(idle) {
		*paid = idle
	}
	wait := paid.Sub(now)
	*paid = paid.Add(time.Duration(seconds * float64(time.Second)))
	return max(wait, 0)
}

// Wait delays a request of n bytes as the limits want, or until stop is closed.
func (l *Limiter) Wait(n int64, stop <-chan struct{}) {
	d := l.reserve(time.Now(), n)
	if d == 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-stop:
	}
}
