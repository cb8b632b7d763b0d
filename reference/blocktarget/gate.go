package blocktarget

import "sync"

// gate lets I/O through until it is fenced, then turns it away for ever.
type gate struct {
	mu       sync.Mutex
	idle     sync.Cond
	inFlight int
	fenced   bool
}

func newGate() *gate {
	g := &gate{}
	g.idle.L = &g.mu
	return g
}

// enter admits one I/O; leave follows if it returns true.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fenced {
		return false
	}
	g.inFlight++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inFlight--; g.inFlight == 0 {
		g.idle.Broadcast()
	}
}

// shut turns all further I/O away.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fenced = true
}

// fence turns all further I/O away, and returns when what had entered has left.
func (g *gate) fence() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fenced = true
	for g.inFlight > 0 {
		g.idle.Wait()
	}
}

func (g *gate) busy() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inFlight
}
