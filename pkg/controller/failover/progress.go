package failover

import (
	"maps"
	"sync"
	"time"
)

const (
	// stuckAfter is after what time without progress a fence is not waited for.
	stuckAfter = time.Second
	// yieldsFor is how long after its failover has begun a host waits for the fences of
	// others, at most.
	yieldsFor = 10 * time.Second
)

// progress is how the fences of all hosts get on. It is kept in memory, as it only puts
// off what may wait for them. Safe for concurrent use.
type progress struct {
	mu sync.Mutex
	at time.Time
	// open are the hosts whose volumes are being fenced, and when one of each got further.
	open map[string]time.Time
}

// note notes that a fence of a host got further.
func (p *progress) note(host string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[string]time.Time{}
	}
	maps.DeleteFunc(p.open, func(_ string, at time.Time) bool { return now.Sub(at) >= busyGrace })
	p.at, p.open[host] = now, now
}

// end notes that no volume of a host is being fenced.
func (p *progress) end(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, host)
}

// last is when a fence got further last.
func (p *progress) last() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

// others reports whether fences of other hosts get on.
func (p *progress) others(than string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for host, at := range p.open {
		if host != than && now.Sub(at) < stuckAfter {
			return true
		}
	}
	return false
}
