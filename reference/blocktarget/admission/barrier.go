package admission

import "sync"

// Barrier lets the changes of one volume through, or makes them wait. A change
// that waits has not passed the gate of its session yet, so a fence does not
// wait for it.
type Barrier struct {
	mu      sync.Mutex
	changed sync.Cond
	changes int // under way
	pauses  int
}

// NewBarrier returns a barrier that is not paused.
func NewBarrier() *Barrier {
	b := &Barrier{}
	b.changed.L = &b.mu
	return b
}

// Enter admits one change, after the pauses; Leave follows.
func (b *Barrier) Enter() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.pauses > 0 {
		b.changed.Wait()
	}
	b.changes++
}

// Leave ends one change that was admitted.
func (b *Barrier) Leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes--
	b.changed.Broadcast()
}

// Pause makes further changes wait until Resume, and returns when those under
// way have ended.
func (b *Barrier) Pause() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pauses++
	for b.changes > 0 {
		b.changed.Wait()
	}
}

// Resume ends one pause; the changes go on with the last.
func (b *Barrier) Resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pauses--
	b.changed.Broadcast()
}
