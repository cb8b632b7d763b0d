package fusepath

import (
	"sync"
	"syscall"
)

// gate lets I/O through, makes it wait, or turns it away for ever.
type gate struct {
	mu       sync.Mutex
	changed  *sync.Cond
	inFlight int
	paused   bool
	fenced   bool
}

func newGate() *gate {
	g := &gate{}
	g.changed = sync.NewCond(&g.mu)
	return g
}

// enter admits one I/O, after a pause if there is one; leave follows. EIO if
// the gate is fenced: then there is nothing to leave.
func (g *gate) enter() syscall.Errno {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.paused && !g.fenced {
		g.changed.Wait()
	}
	if g.fenced {
		return syscall.EIO
	}
	g.inFlight++
	return 0
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inFlight--; g.inFlight == 0 {
		g.changed.Broadcast()
	}
}

func (g *gate) pause(paused bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.paused = paused
	g.changed.Broadcast()
}

// fence turns all further I/O away, and returns when what had entered has left.
func (g *gate) fence() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fenced = true
	g.changed.Broadcast()
	for g.inFlight > 0 {
		g.changed.Wait()
	}
}
