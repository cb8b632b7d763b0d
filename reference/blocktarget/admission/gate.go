package admission

import "sync"

// Gate lets I/O through until it is fenced, then turns it away for ever.
type Gate struct {
	mu       sync.Mutex
	idle     sync.Cond
	inFlight int
	fenced   bool
}

// NewGate returns an open gate.
func NewGate() *Gate {
	g := &Gate{}
	g.idle.L = &g.mu
	return g
}

// Enter admits one I/O; Leave follows if it returns true.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fenced {
		return false
	}
	g.inFlight++
	return true
}

// Leave ends one I/O that was admitted.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inFlight--; g.inFlight == 0 {
		g.idle.Broadcast()
	}
}

// Shut turns all further I/O away.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fenced = true
}

// Fence turns all further I/O away, and returns when what had entered has left.
func (g *Gate) Fence() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fenced = true
	for g.inFlight > 0 {
		g.idle.Wait()
	}
}

// Busy returns how many are inside.
func (g *Gate) Busy() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inFlight
}
