package selffence

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// Watchdog resets the machine when it is not fed for its timeout.
type Watchdog interface {
	Timeout() time.Duration
	Feed() error
	// Close stops it, or leaves it running.
	Close(disarm bool) error
}

// Options of a Keeper.
type Options struct {
	// Duration of the lease.
	Duration time.Duration
	// Drain is how long the storage may take over what it received before the
	// DPU was reset.
	Drain time.Duration
	// Timeout is that which the watchdog will be asked for.
	Timeout time.Duration
	// Open opens the watchdog, which feeds it. Nil: no lease is given, and only
	// what a predecessor has promised is taken back before anything is shown.
	Open func() (Watchdog, error)
	// Shown reports whether SNAP may show anything of a single-writer volume,
	// and Withdraw takes all of that away.
	Shown    func(context.Context) (bool, error)
	Withdraw func(context.Context) error
	// Changed asks for a heartbeat at once.
	Changed func()
	// Now is a clock that counts while the machine is suspended, too.
	Now func() time.Duration
	// Clock makes tickers; the machine's if nil.
	Clock clock.WithTicker
}

// ticks is how often the watchdog is fed within its timeout.
const ticks = 6

// patience is the part of the watchdog's timeout for which a predecessor's volumes
// are left, see state: the timeout runs since that process ended.
const patience = 3

// watchdogError is how much the clock of a watchdog may be wrong, as a part of its
// timeout.
const watchdogError = 0.01

// Keeper keeps one DPU's lease. It is safe for concurrent use.
type Keeper struct {
	o Options

	mu    sync.Mutex
	state state
	// grace is known once the watchdog is open.
	grace time.Duration

	dog Watchdog // of Run alone
}

// New returns a Keeper; Run it before anything is shown.
func New(o Options) *Keeper {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Keeper{o: o, state: state{duration: o.Duration, patience: o.Now() + o.Timeout/patience}}
}

// grace is how long after the end of a lease a write may land at most. A watchdog
// may be fed once more, by a keeper that checked its lease just before it ended and
// was slow: but within its timeout, or it would have fired. It is fed again when
// its device is closed, within its timeout after that. And then it takes its
// timeout to fire.
func grace(timeout, drain time.Duration) time.Duration {
	return time.Duration(3*float64(timeout)*(1+watchdogError)) + drain
}

// Run keeps the lease until ctx ends, and then gives the watchdog back, which
// stops only if nothing is shown. Nothing may be shown after that. An error means
// that this process cannot keep the promise.
func (k *Keeper) Run(ctx context.Context) error {
	if k.o.Open == nil {
		return nil
	}
	ticker := k.o.Clock.NewTicker(min(k.o.Timeout, k.o.Duration) / ticks)
	defer ticker.Stop()
	for {
		if err := k.step(ctx); err != nil {
			return errors.Join(err, k.close())
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.o.Timeout/ticks)
			defer cancel()
			k.check(last)
			return k.close()
		case <-ticker.C():
		}
	}
}

// step does what is due.
func (k *Keeper) step(ctx context.Context) error {
	p := k.plan()
	if p.withdraw {
		ctrl.LoggerFrom(ctx).Info("the lease of this DPU is over: withdrawing every single-writer volume")
		if err := k.o.Withdraw(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "withdraw at the end of the lease")
		}
	}
	if p.check {
		k.check(ctx)
		p = k.plan()
	}
	switch {
	case p.open:
		return k.open()
	case p.feed:
		return k.dog.Feed()
	}
	return nil
}

func (k *Keeper) plan() plan {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state.decide(k.o.Now())
}

// check finds out whether nothing is shown.
func (k *Keeper) check(ctx context.Context) {
	k.mu.Lock()
	asked := k.state.asked
	k.mu.Unlock()
	shown, err := k.o.Shown(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("whether anything is shown cannot be told", "reason", err.Error())
	}
	if shown || err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state.seen(asked)
}

func (k *Keeper) open() error {
	dog, err := k.o.Open()
	if err != nil {
		return err
	}
	k.dog = dog
	k.mu.Lock()
	k.state.open, k.grace = true, grace(dog.Timeout(), k.o.Drain)
	k.mu.Unlock()
	if dog.Timeout() < k.o.Timeout/2 {
		return fmt.Errorf("the watchdog's timeout is %s, and cannot be made %s: choose one that it has", dog.Timeout(), k.o.Timeout)
	}
	k.o.Changed()
	return nil
}

func (k *Keeper) close() error {
	if k.dog == nil {
		return nil
	}
	k.mu.Lock()
	disarm := k.state.shut()
	k.mu.Unlock()
	return k.dog.Close(disarm)
}

// State adds the lease to what a heartbeat says, as the last thing before it is
// sent.
func (k *Keeper) State(inner func(context.Context) (moorv1alpha1.DPUState, error)) func(context.Context) (moorv1alpha1.DPUState, error) {
	return func(ctx context.Context) (moorv1alpha1.DPUState, error) {
		out, err := inner(ctx)
		if err != nil {
			return out, err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.state.begin(k.o.Now()) {
			out.Lease = &moorv1alpha1.DPULease{DurationMillis: k.o.Duration.Milliseconds(), GraceMillis: k.grace.Milliseconds()}
		}
		return out, nil
	}
}

// Answered notes that the heartbeat of the last State was answered.
func (k *Keeper) Answered(*moorv1alpha1.DPUStorageNode) {
	k.mu.Lock()
	was := k.state.phase
	k.state.answered(k.o.Now())
	is := k.state.phase
	k.mu.Unlock()
	if was == unknown && is == unbound {
		k.o.Changed()
	}
}

// Permit says whether anything may be shown now, and under which term. It has to
// be asked before the claim is read.
func (k *Keeper) Permit() (term int64, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state.term, k.state.good(k.o.Now())
}

// Enter lets the caller tell SNAP to show something, if the term still stands;
// leave has to be called when SNAP has answered, or will not.
func (k *Keeper) Enter(term int64) (leave func(), ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.state.enter(k.o.Now(), term) {
		return nil, false
	}
	return sync.OnceFunc(func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.state.leave()
	}), true
}
