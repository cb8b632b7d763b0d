// Package spdktest stands in for an NVMe-oF target with SPDK's JSON-RPC, as far as host
// access goes: subsystems, the hosts that they admit, controllers, queue pairs and the
// writes that a queue pair has taken and not done yet. A test connects hosts, writes, lands
// writes when it wants to, restarts the target, and switches on how it lies (Lies).
package spdktest

import (
	"errors"
	"maps"
	"slices"
	"sync"
)

// ErrRefused is what a host gets that the target does not admit, or has disconnected.
var ErrRefused = errors.New("the target refuses it")

// Lies are ways in which a target differs from one that does what it answers.
type Lies struct {
	// AnswersEarly: a removal is answered while queue pairs are still there, as by SPDK
	// versions that do not wait for them.
	AnswersEarly bool
	// KeepsConnections: a removal ends no queue pair at all.
	KeepsConnections bool
	// ForgetsRemovals: a removal is answered and not done.
	ForgetsRemovals bool
	// HidesQueues: a queue pair is listed no more once it is disconnected, though what it
	// has taken is still written.
	HidesQueues bool
	// ForgetsHosts: a restart forgets who was admitted, as SPDK does without a saved
	// configuration.
	ForgetsHosts bool
	// Once is what happens to the next call of a method.
	Once map[string]Fault
}

// Fault is what happens to a call.
type Fault int

// The faults of a call.
const (
	// Error: it is refused, and has no effect.
	Error Fault = iota + 1
	// Lost: it has its effect, and the connection ends without an answer.
	Lost
	// Late: the connection ends without an answer, and it has its effect at DoLate.
	Late
	// Hang: it has no effect, and no answer comes while the caller waits.
	Hang
	// Half: it has its effect, and the answer ends in the middle.
	Half
	// Empty: it has no effect, and the answer is an object or a list with nothing in it.
	Empty
)

// Target is a target. Its methods are safe for concurrent use.
type Target struct {
	// Accepted, if set, is told of each write as it reaches the medium. It must not call
	// the target.
	Accepted func(hostNQN, what string)

	mu         sync.Mutex
	subsystems map[string]*subsystem
	nextID     int64
	lies       Lies
	late       []func()
	written    []string
	calls      []string
}

type subsystem struct {
	bdevs       []string
	anyHost     bool
	hosts       map[string]bool
	connections []*Connection
}

// Connection is a controller of a host with one queue pair for I/O.
type Connection struct {
	t       *Target
	s       *subsystem
	id      int64
	host    string
	ended   bool
	hidden  bool
	pending int
}

// New returns a target with no subsystem.
func New() *Target { return &Target{subsystems: map[string]*subsystem{}} }

// AddSubsystem makes a subsystem over bdevs, which admits no host.
func (t *Target) AddSubsystem(nqn string, bdevs ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subsystems[nqn] = &subsystem{bdevs: bdevs, hosts: map[string]bool{}}
}

// RemoveSubsystem removes one, with its connections.
func (t *Target) RemoveSubsystem(nqn string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.subsystems, nqn)
}

// AllowAnyHost switches it on or off.
func (t *Target) AllowAnyHost(nqn string, on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subsystems[nqn].anyHost = on
}

// Lie changes how the target lies.
func (t *Target) Lie(change func(*Lies)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.lies)
}

// Hosts are the names that a subsystem admits, sorted.
func (t *Target) Hosts(nqn string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.subsystems[nqn].hosts))
}

// Admit adds a host, as an operator would beside the vendor's controller.
func (t *Target) Admit(nqn, host string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subsystems[nqn].hosts[host] = true
}

// Written are the writes that reached the medium, in order.
func (t *Target) Written() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.written)
}

// Calls are the methods that were called, in order, since the last call of Calls.
func (t *Target) Calls() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.calls
	t.calls = nil
	return out
}

// DoLate has the calls take effect that were late.
func (t *Target) DoLate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, do := range t.late {
		do()
	}
	t.late = nil
}

// Restart ends all connections and what they had in flight.
func (t *Target) Restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.subsystems {
		for _, c := range s.connections {
			c.ended, c.pending = true, 0
		}
		s.connections = nil
		if t.lies.ForgetsHosts {
			clear(s.hosts)
		}
	}
}

// Connect connects a host to a subsystem.
func (t *Target) Connect(nqn, host string) (*Connection, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.subsystems[nqn]
	if !ok || !s.anyHost && !s.hosts[host] {
		return nil, ErrRefused
	}
	t.nextID++
	c := &Connection{t: t, s: s, id: t.nextID, host: host}
	s.connections = append(s.connections, c)
	return c, nil
}

// Write writes, and returns when it has reached the medium or was refused.
func (c *Connection) Write(what string) error {
	land, err := c.Send(what)
	if err != nil {
		return err
	}
	land()
	return nil
}

// Send has the queue pair take a write, which reaches the medium at land. A restart of the
// target in between loses it.
func (c *Connection) Send(what string) (land func(), err error) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	if c.ended {
		return nil, ErrRefused
	}
	c.pending++
	return sync.OnceFunc(func() {
		c.t.mu.Lock()
		defer c.t.mu.Unlock()
		if c.pending == 0 {
			return
		}
		c.pending--
		c.t.written = append(c.t.written, what)
		if c.t.Accepted != nil {
			c.t.Accepted(c.host, what)
		}
		c.gone()
	}), nil
}

// Close ends the connection from the host's side.
func (c *Connection) Close() {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.end()
}

// end disconnects: nothing more is taken, and what was taken is done before it is gone.
func (c *Connection) end() {
	c.ended, c.hidden = true, c.t.lies.HidesQueues
	c.gone()
}

func (c *Connection) gone() {
	if c.ended && (c.pending == 0 || c.hidden) {
		c.s.connections = slices.DeleteFunc(c.s.connections, func(o *Connection) bool { return o == c })
	}
}
