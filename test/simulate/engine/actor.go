package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// ErrLost is the error of a call whose request or whose answer was lost.
var ErrLost = errors.New("connection lost")

// ErrGone is the error of all calls of a process that was killed: nothing that it does
// afterwards has an effect.
var ErrGone = errors.New("this process was killed")

// Kind is what a call is, for what may go wrong with it.
type Kind int

const (
	// Read has no effect.
	Read Kind = iota
	// Write is one to an API server. It may land after its caller has given up.
	Write
	// Device is a call on the same machine: it lands in order, or never.
	Device
)

// Faults are what goes wrong, of a thousand calls each. Reads are only lost.
type Faults struct {
	// LoseRequest: the call fails without effect. LoseAnswer: it has its effect, and fails.
	LoseRequest, LoseAnswer int
	// CrashBefore and CrashAfter: the caller is killed before the effect, or after it.
	CrashBefore, CrashAfter int
	// Slow calls take up to some seconds, Stuck ones up to a minute.
	Slow, Stuck int
}

// Actor is a process.
type Actor struct {
	// Name is the same for all lives of the process.
	Name string

	engine *Engine
	dice   *rand.Rand
	faults *Faults
	crash  func()
	dead   chan struct{}
	ctx    context.Context
	cancel context.CancelFunc
	killed bool
	stalls time.Duration
	orphan []*call
}

// NewActor is a process that runs. dice are those of its name; they outlive it. faults may
// change while it runs. crash is called when a fault has killed it.
func (e *Engine) NewActor(name string, dice *rand.Rand, faults *Faults, crash func()) *Actor {
	ctx, cancel := context.WithCancel(context.Background())
	return &Actor{Name: name, engine: e, dice: dice, faults: faults, crash: crash, dead: make(chan struct{}), ctx: ctx, cancel: cancel}
}

// Context ends with the process.
func (a *Actor) Context() context.Context { return a.ctx }

// Alive reports whether it was not killed.
func (a *Actor) Alive() bool { return !a.killed }

// Kill ends the process at once. What it has sent to an API server may arrive yet; what it
// has sent on its own machine has arrived or never will.
func (a *Actor) Kill() {
	if a.killed {
		return
	}
	a.killed = true
	for _, c := range a.orphan {
		if c.kind == Device && !c.over && c.ctx.Err() == nil && a.dice.IntN(2) == 0 {
			_ = c.do() // its caller is gone
		}
		c.over = c.over || c.kind != Write
	}
	close(a.dead)
	a.cancel()
}

// Stall lets nothing that the process asks for happen for a time.
func (a *Actor) Stall(d time.Duration) { a.stalls = a.engine.Elapsed() + d }

// Stalled reports whether it is so now.
func (a *Actor) Stalled() bool { return a.stalls > a.engine.Elapsed() }

// Go runs something on a goroutine of the process, and then done on the engine's, unless
// the process was killed.
func (a *Actor) Go(what string, do, done func()) {
	go func() {
		do()
		a.engine.arrive(arrival{a.Name, "end of " + what, func() {
			if !a.killed {
				done()
			}
		}})
	}()
}

// call is one that waits.
type call struct {
	by   *Actor
	ctx  context.Context
	what string
	kind Kind
	do   func() error
	done chan error
	over bool
}

// Call waits until the engine lets the call happen, and returns what it came to. what
// names it. do runs on the engine's goroutine, perhaps after Call has returned: then
// with an error.
func (a *Actor) Call(ctx context.Context, kind Kind, what string, do func() error) error {
	select {
	case <-a.dead:
		return ErrGone
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c := &call{by: a, ctx: ctx, what: what, kind: kind, do: do, done: make(chan error, 1)}
	a.engine.arrive(arrival{a.Name, what, c.schedule})
	defer a.engine.meet()
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-a.dead:
		return ErrGone
	}
}

// schedule lets the call happen after the time that it takes.
func (c *call) schedule() {
	a := c.by
	if a.killed {
		return
	}
	a.orphan = slices.DeleteFunc(a.orphan, func(o *call) bool { return o.over })
	a.orphan = append(a.orphan, c)
	took := time.Duration(a.dice.Int64N(int64(20*time.Millisecond))) + 50*time.Microsecond
	switch roll := a.dice.IntN(1000); {
	case roll < a.faults.Stuck:
		took = time.Duration(a.dice.Int64N(int64(time.Minute)))
	case roll < a.faults.Stuck+a.faults.Slow:
		took = time.Duration(a.dice.Int64N(int64(4 * time.Second)))
	}
	a.engine.After(took, c.happen)
}

func (c *call) happen() {
	a := c.by
	if wait := a.stalls - a.engine.Elapsed(); wait > 0 && !a.killed {
		a.engine.After(wait, c.happen)
		return
	}
	if c.over {
		return
	}
	c.over = true
	if a.killed || c.ctx.Err() != nil {
		if c.kind == Write && a.dice.IntN(2) == 0 {
			if err := c.do(); err == nil {
				a.engine.Tell(a.Name, "%s (late: who sent it has given up)", c.what)
			}
		}
		return
	}
	c.done <- c.outcome()
}

// outcome does what was asked for, or what goes wrong with it.
func (c *call) outcome() error {
	a, f := c.by, c.by.faults
	roll := a.dice.IntN(1000)
	if c.kind == Read {
		if roll < f.LoseRequest {
			return ErrLost
		}
		return c.do()
	}
	switch {
	case roll < f.LoseRequest:
		a.engine.Tell(a.Name, "%s: the request is lost", c.what)
		return ErrLost
	case roll < f.LoseRequest+f.CrashBefore:
		a.engine.Tell(a.Name, "is killed before: %s", c.what)
		a.crash()
		return ErrGone
	}
	err := c.do()
	switch roll -= f.LoseRequest + f.CrashBefore; {
	case err != nil:
		return err
	case roll < f.LoseAnswer:
		a.engine.Tell(a.Name, "%s: the answer is lost", c.what)
		return ErrLost
	case roll < f.LoseAnswer+f.CrashAfter:
		a.engine.Tell(a.Name, "is killed after: %s", c.what)
		a.crash()
		return ErrGone
	}
	return nil
}
