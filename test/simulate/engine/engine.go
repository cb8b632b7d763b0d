// Package engine plays concurrent programs as one sequence of steps that a seed decides.
//
// It runs in a bubble of testing/synctest, whose clock is the virtual time of everything
// in it. A program runs on goroutines of its own; wherever it calls another (an API
// server, SNAP), its goroutine waits until the engine lets the call happen. One thing
// happens at a time: the next of all calls and other steps that are due, after which
// everybody runs until all wait again. How long a call takes comes from the dice of its
// actor, so what one actor does more or less leaves the dice of the others alone.
package engine

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sort"
	"sync"
	"testing/synctest"
	"time"
)

// Engine holds what is to happen. Its methods are for the goroutine that runs it.
type Engine struct {
	seed  uint64
	begin time.Time
	steps steps
	count uint64
	lines []string

	mu      sync.Mutex
	arrived []arrival
	met     uint64
}

// New is an engine at which nothing happens yet. It has to be called in a bubble.
func New(seed uint64) *Engine { return &Engine{seed: seed, begin: time.Now()} }

// Dice are those of a name: the same for the same seed, whatever others there are.
func (e *Engine) Dice(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // it never fails
	return rand.New(rand.NewPCG(e.seed, h.Sum64()))
}

// Elapsed is the virtual time since the beginning.
func (e *Engine) Elapsed() time.Duration { return time.Since(e.begin) }

// After lets something happen after a time.
func (e *Engine) After(d time.Duration, do func()) {
	e.count++
	heap.Push(&e.steps, step{at: e.Elapsed() + max(0, d), nr: e.count, do: do})
}

// Every lets something happen again and again, first after one period.
func (e *Engine) Every(period time.Duration, do func()) {
	e.After(period, func() {
		do()
		e.Every(period, do)
	})
}

// Tell adds a line to the story.
func (e *Engine) Tell(who, format string, args ...any) {
	e.lines = append(e.lines, fmt.Sprintf("%10.4fs %-12s %s", e.Elapsed().Seconds(), who, fmt.Sprintf(format, args...)))
}

// Story is what happened, a line each.
func (e *Engine) Story() []string { return e.lines }

// Run lets happen what is due within a time, or until stop says so.
func (e *Engine) Run(until time.Duration, stop func() bool) {
	e.settle()
	for len(e.steps) > 0 && e.steps[0].at <= until && !stop() {
		next := heap.Pop(&e.steps).(step)
		if wait := next.at - e.Elapsed(); wait > 0 {
			time.Sleep(wait) // virtual; deadlines that end before wake who waits for them
			e.settle()
		}
		next.do()
		e.settle()
	}
}

// settle waits until everybody waits, and takes up what they wait for: in the order of
// names, since those that run at once come in any order.
func (e *Engine) settle() {
	for {
		synctest.Wait()
		e.mu.Lock()
		arrived := e.arrived
		e.arrived = nil
		e.mu.Unlock()
		if len(arrived) == 0 {
			return
		}
		sort.SliceStable(arrived, func(i, j int) bool {
			a, b := arrived[i], arrived[j]
			return a.who < b.who || a.who == b.who && a.what < b.what
		})
		for _, a := range arrived {
			a.take()
		}
	}
}

// arrival is something that a goroutine of an actor wants taken up.
type arrival struct {
	who, what string
	take      func()
}

func (e *Engine) arrive(a arrival) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.arrived = append(e.arrived, a)
}

// meet lets the race detector know that all which the engine did is over: of one that is
// woken by a deadline it cannot see that.
func (e *Engine) meet() {
	e.mu.Lock()
	e.met++
	e.mu.Unlock()
}

// step is something that is to happen; of those at one time the first that was asked for.
type step struct {
	at time.Duration
	nr uint64
	do func()
}

type steps []step

func (s steps) Len() int { return len(s) }

func (s steps) Less(i, j int) bool {
	return s[i].at < s[j].at || s[i].at == s[j].at && s[i].nr < s[j].nr
}

func (s steps) Swap(i, j int) { s[i], s[j] = s[j], s[i] }

// Push is for container/heap.
func (s *steps) Push(x any) { *s = append(*s, x.(step)) }

// Pop is for container/heap.
func (s *steps) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}
