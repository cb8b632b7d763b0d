// Package fault is the failures that a test asks the emulated service for.
package fault

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moor-storage/moor/internal/snaprpc"
)

// The instants at which a fault strikes: before the method runs, or after it,
// when its effect is there and only the answer is lost.
const (
	Before = "before"
	After  = "after"
)

// Fault is one way in which the service misbehaves, as moor_inject takes it.
// Delay may come with any other; of the others the first one given counts.
type Fault struct {
	// Method is a method's name, or "*" for every one but moor_*.
	Method string `json:"method" snap:"must"`
	// When is "before" (the default) or "after".
	When string `json:"when,omitempty"`
	// Error is answered in place of the result.
	Error *snaprpc.Error `json:"error,omitempty"`
	// DelayMS is waited, in milliseconds, before anything else.
	DelayMS int `json:"delay_ms,omitempty"`
	// Hang never answers, until moor_clear; then the connection is closed.
	Hang bool `json:"hang,omitempty"`
	// Garbage answers a line that is no JSON.
	Garbage bool `json:"garbage,omitempty"`
	// Half answers the first bytes of an answer and closes.
	Half bool `json:"half,omitempty"`
	// Drop closes the connection without an answer.
	Drop bool `json:"drop,omitempty"`
	// Twice sends the answer a second time.
	Twice bool `json:"twice,omitempty"`
	// Count is how many calls it strikes; 0 means one, below 0 all of them.
	Count int `json:"count,omitempty"`
}

// Outcome is what a fault leaves to do.
type Outcome int

// What a fault can leave.
const (
	// Proceed: the call goes on as if there were no fault.
	Proceed Outcome = iota
	// struck: the answer is the fault's.
	struck
	// Closed: there is no answer, and the connection ends.
	Closed
)

// Set is the set of faults that wait for their call.
type Set struct {
	mu      sync.Mutex
	waiting []*Fault
	calls   map[string]int
	// release is closed by clear, to let hanging calls go.
	release chan struct{}
}

// NewSet is a set without faults.
func NewSet() *Set {
	return &Set{calls: map[string]int{}, release: make(chan struct{})}
}

// Inject adds a fault.
func (f *Set) Inject(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fault.When == "" {
		fault.When = Before
	}
	if fault.Count == 0 {
		fault.Count = 1
	}
	f.waiting = append(f.waiting, &fault)
}

// Clear drops all faults, and lets the calls that hang go.
func (f *Set) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = nil
	close(f.release)
	f.release = make(chan struct{})
}

// Take counts the call and returns the fault that strikes it, or nil.
func (f *Set) Take(method string) *Fault {
	if Control(method) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[method]++
	i := slices.IndexFunc(f.waiting, func(x *Fault) bool { return x.Method == method || x.Method == "*" })
	if i < 0 {
		return nil
	}
	found := *f.waiting[i]
	if f.waiting[i].Count--; f.waiting[i].Count == 0 {
		f.waiting = slices.Delete(f.waiting, i, i+1)
	}
	return &found
}

// Released is closed when Clear is called next.
func (f *Set) Released() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.release
}

// Snapshot returns copies of the waiting faults and the calls counted.
func (f *Set) Snapshot() ([]Fault, map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting := []Fault{}
	for _, x := range f.waiting {
		waiting = append(waiting, *x)
	}
	calls := make(map[string]int, len(f.calls))
	for k, v := range f.calls {
		calls[k] = v
	}
	return waiting, calls
}

// Play waits as the fault says and tells what is left to do.
func (f *Fault) Play(ctx context.Context, released <-chan struct{}) Outcome {
	if f.DelayMS > 0 {
		t := time.NewTimer(time.Duration(f.DelayMS) * time.Millisecond)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return Closed
		}
	}
	switch {
	case f.Hang:
		select {
		case <-released:
		case <-ctx.Done():
		}
		return Closed
	case f.Drop:
		return Closed
	case f.Error != nil, f.Garbage, f.Half:
		return struck
	}
	return Proceed
}

// Control reports whether a method steers the emulator and is none of SNAP's.
func Control(name string) bool { return strings.HasPrefix(name, "moor_") }
