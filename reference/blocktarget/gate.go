package blocktarget

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

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

// barrier lets the changes of one volume through, or makes them wait. A change
// that waits has not passed the gate of its session yet, so a fence does not
// wait for it.
type barrier struct {
	mu      sync.Mutex
	changed sync.Cond
	changes int // under way
	pauses  int
}

func newBarrier() *barrier {
	b := &barrier{}
	b.changed.L = &b.mu
	return b
}

// enter admits one change, after the pauses; leave follows.
func (b *barrier) enter() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.pauses > 0 {
		b.changed.Wait()
	}
	b.changes++
}

func (b *barrier) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes--
	b.changed.Broadcast()
}

// pause makes further changes wait until resume, and returns when those under
// way have ended.
func (b *barrier) pause() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pauses++
	for b.changes > 0 {
		b.changed.Wait()
	}
}

func (b *barrier) resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pauses--
	b.changed.Broadcast()
}

// Pause makes the changes of all DPUs to the volumes wait, calls during with
// every earlier one done, and lets them go on. Reads are not held up. For as
// long as during runs, the data of the volumes is that of one instant.
func (s *Server) Pause(ctx context.Context, volumes []string, during func(context.Context) error) error {
	volumes = slices.Compact(slices.Sorted(slices.Values(volumes)))
	for _, name := range volumes {
		v := s.keep(name)
		defer s.drop(name, v)
		v.barrier.pause()
		defer v.barrier.resume()
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the pause came too late: %w", err)
	}
	return during(ctx)
}

// keep makes the books keep a volume, open or not; drop follows.
func (s *Server) keep(name string) *volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.volumes[name]
	if v == nil {
		v = &volume{sessions: map[string]*session{}, barrier: newBarrier(), limiter: &limiter{}}
		s.volumes[name] = v
	}
	v.users++
	return v
}

func (s *Server) drop(name string, v *volume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// With no other user, the sessions cannot change now.
	if v.users--; v.users == 0 && len(v.sessions) == 0 {
		delete(s.volumes, name)
	}
}
