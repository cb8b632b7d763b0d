package selffence

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// dpu is a DPU with a watchdog of 10 s and a lease of 20 s. Its time is ours.
type dpu struct {
	*Keeper
	t    *testing.T
	mu   sync.Mutex
	now  time.Duration
	left time.Duration // until the reset
	// open, and what SNAP says.
	open, disarmed, shown, obeys bool
	snap                         error
	changes                      int
}

func newDPU(t *testing.T) *dpu {
	d := &dpu{t: t, obeys: true}
	d.Keeper = New(d.options())
	return d
}

func (d *dpu) options() Options {
	return Options{
		Duration: 20 * second, Timeout: 10 * second, Drain: 5 * second,
		Open:  func() (Watchdog, error) { d.open, d.left = true, 10*second; return d, nil },
		Shown: func(context.Context) (bool, error) { return d.shown, d.snap },
		Withdraw: func(context.Context) error {
			d.shown = d.shown && !d.obeys
			return nil
		},
		Changed: func() { d.changes++ },
		Now:     func() time.Duration { d.mu.Lock(); defer d.mu.Unlock(); return d.now },
	}
}

func (d *dpu) Timeout() time.Duration { return 10 * second }
func (d *dpu) Feed() error            { d.left = 10 * second; return nil }
func (d *dpu) Close(disarm bool) error {
	d.open, d.disarmed = false, disarm
	return nil
}

// pass lets seconds go by, in each of which the keeper does what is due. It says
// whether the DPU was reset.
func (d *dpu) pass(seconds int) (reset bool) {
	d.t.Helper()
	for range seconds {
		d.mu.Lock()
		d.now += second
		d.mu.Unlock()
		if d.open {
			d.left -= second
			if d.left <= 0 {
				return true
			}
		}
		if err := d.step(d.t.Context()); err != nil {
			d.t.Fatal(err)
		}
	}
	return false
}

// beat sends a heartbeat, which is answered or not, and returns the lease in it.
func (d *dpu) beat(answered bool) *moorv1alpha1.DPULease {
	d.t.Helper()
	out, err := d.State(func(context.Context) (moorv1alpha1.DPUState, error) { return moorv1alpha1.DPUState{}, nil })(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	if answered {
		d.Answered(nil)
	}
	return out.Lease
}

// bind brings the DPU to where it gives a lease and shows something.
func (d *dpu) bind() {
	d.t.Helper()
	d.pass(1)
	if d.beat(true) != nil {
		d.t.Fatal("it gives a lease before it knows that none stands")
	}
	d.pass(1)
	if l := d.beat(true); l == nil || l.DurationMillis != 20_000 || l.GraceMillis != 35_300 {
		d.t.Fatalf("lease %+v", l)
	}
	term, ok := d.Permit()
	leave, in := d.Enter(term)
	if !ok || !in {
		d.t.Fatal("nothing may be shown")
	}
	d.shown = true
	leave()
}

func TestRenewed(t *testing.T) {
	d := newDPU(t)
	d.bind()
	d.o.Shown = func(context.Context) (bool, error) {
		t.Error("SNAP is asked though the lease is good")
		return true, nil
	}
	for range 10 {
		if d.pass(10) || d.beat(true) == nil || !d.shown {
			t.Fatal("a lease that is renewed has ended")
		}
	}
}

// TestCutOff: at the end of the lease everything is withdrawn, the DPU is not
// reset, and shows nothing before a beat was answered.
func TestCutOff(t *testing.T) {
	d := newDPU(t)
	d.bind()
	old, _ := d.Permit()
	if d.pass(19); !d.shown {
		t.Error("it withdrew too early")
	}
	d.beat(false)
	if reset := d.pass(60); d.shown || reset {
		t.Errorf("shown: %v, reset: %v", d.shown, reset)
	}
	if _, ok := d.Permit(); ok {
		t.Error("something may be shown after the end")
	}
	d.beat(true)
	if _, in := d.Enter(old); in {
		t.Error("a claim that was read before the end still counts")
	}
	term, ok := d.Permit()
	if _, in := d.Enter(term); !ok || !in {
		t.Error("nothing may be shown though the lease was renewed")
	}
}

// TestReset: where SNAP does not obey, or does not answer, or a call to it is
// still under way, the watchdog ends it.
func TestReset(t *testing.T) {
	for name, breakIt := range map[string]func(*dpu){
		"does not obey":  func(d *dpu) { d.obeys = false },
		"does not say":   func(d *dpu) { d.snap = errors.New("no answer") },
		"is still asked": func(d *dpu) { term, _ := d.Permit(); d.Enter(term) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDPU(t)
			d.bind()
			breakIt(d)
			d.pass(19)
			if !d.pass(12) {
				t.Error("no reset within the watchdog's timeout after the end")
			}
		})
	}
}

// TestStart: a process that has just started gives no lease and shows nothing
// before a beat was answered, and does not feed the watchdog for what its
// predecessor shows.
func TestStart(t *testing.T) {
	d := newDPU(t)
	d.shown = true
	if d.pass(3); d.open || !d.shown {
		t.Errorf("within its patience: watchdog open: %v, shown: %v", d.open, d.shown)
	}
	if _, ok := d.Permit(); ok {
		t.Error("it may show something")
	}
	if d.pass(2); d.shown || !d.open {
		t.Errorf("nothing answers: shown: %v, watchdog open: %v", d.shown, d.open)
	}
	if _, ok := d.Permit(); ok || d.beat(false) != nil {
		t.Error("it gives a lease, or may show something, before a beat was answered")
	}
	again := newDPU(t)
	again.shown = true
	if again.beat(true); again.changes != 1 {
		t.Errorf("no promise stands, which lets it open its watchdog: %d beats asked for", again.changes)
	}
	if again.beat(true); again.changes != 1 {
		t.Errorf("nothing has changed: %d beats asked for", again.changes)
	}
	if again.pass(1); !again.open || !again.shown || again.changes != 2 {
		t.Errorf("answered: watchdog open: %v, shown: %v, beats asked for: %d", again.open, again.shown, again.changes)
	}
	if again.beat(true) == nil {
		t.Error("it gives no lease")
	}
}

// TestWithoutWatchdog: only a predecessor's promise is taken back.
func TestWithoutWatchdog(t *testing.T) {
	d := newDPU(t)
	o := d.options()
	o.Open = nil
	d.Keeper = New(o)
	if err := d.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := d.Permit(); ok {
		t.Error("something may be shown while the promise stands")
	}
	if d.beat(true) != nil {
		t.Error("it gives a lease")
	}
	if _, ok := d.Permit(); !ok {
		t.Error("nothing may be shown though no promise stands")
	}
}

// TestRun gives the watchdog back when it ends: stopped if nothing is shown.
func TestRun(t *testing.T) {
	for _, shown := range []bool{false, true} {
		d := newDPU(t)
		o := d.options()
		clock := clocktesting.NewFakeClock(time.Unix(1, 0))
		o.Clock = clock
		d.Keeper = New(o)
		d.bind()
		d.shown = shown
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if d.open || d.disarmed == shown {
			t.Errorf("shown: %v, open: %v, stopped: %v", shown, d.open, d.disarmed)
		}
	}
}

// TestFed: a watchdog is opened in the first step if nothing is shown, and is then fed six times
// within its timeout.
func TestFed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDPU(t)
		o := d.options()
		clock := clocktesting.NewFakeClock(time.Unix(1, 0))
		o.Clock = clock
		d.Keeper = New(o)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		synctest.Wait()
		if !d.open {
			t.Error("nothing is shown, and yet the watchdog is not open after the first step")
		}
		const each = 10 * second / 6
		for range 6 {
			d.left = 0
			clock.Step(each - 1)
			if synctest.Wait(); d.left != 0 {
				t.Error("it is fed too early")
			}
			clock.Step(1)
			if synctest.Wait(); d.left != 10*second {
				t.Error("it is not fed")
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestNoWatchdog: a keeper that cannot have one ends with the reason.
func TestNoWatchdog(t *testing.T) {
	d := newDPU(t)
	gone := errors.New("no such device")
	o := d.options()
	o.Open = func() (Watchdog, error) { return nil, gone }
	d.Keeper = New(o)
	if err := d.Run(t.Context()); !errors.Is(err, gone) || d.changes != 0 {
		t.Errorf("%v, %d beats asked for", err, d.changes)
	}
}

// TestUnknownState: a heartbeat that is not sent, as the rest of it is not known, promises nothing.
func TestUnknownState(t *testing.T) {
	d := newDPU(t)
	d.pass(1)
	d.beat(true)
	unknown := errors.New("SNAP does not answer")
	out, err := d.State(func(context.Context) (moorv1alpha1.DPUState, error) { return moorv1alpha1.DPUState{}, unknown })(t.Context())
	if !errors.Is(err, unknown) || out.Lease != nil || d.state.phase != unbound {
		t.Errorf("%v, lease %+v, phase %d", err, out.Lease, d.state.phase)
	}
}

// TestShortWatchdog: one that has a much shorter timeout than was asked for would
// reset the DPU for nothing.
func TestShortWatchdog(t *testing.T) {
	for timeout, refused := range map[time.Duration]bool{time.Minute: true, 25 * second: true, 20 * second: false} {
		d := newDPU(t)
		o := d.options()
		o.Timeout = timeout
		d.Keeper = New(o)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.Run(ctx); (err != nil) != refused || d.open || !d.disarmed {
			t.Errorf("%s: error %v, open: %v, stopped: %v", timeout, err, d.open, d.disarmed)
		}
	}
}

// TestWhatSNAPSaidIsOfThePast: something is shown between SNAP's answer and its
// being noted. The answer is of before, so it does not stop the watchdog.
func TestWhatSNAPSaidIsOfThePast(t *testing.T) {
	d := newDPU(t)
	d.bind()
	d.shown = false
	o := d.options()
	between := func() {
		term, _ := d.Permit()
		leave, ok := d.Enter(term)
		if !ok {
			t.Fatal("nothing may be shown")
		}
		d.shown = true
		leave()
	}
	d.o.Shown = func(ctx context.Context) (bool, error) {
		shown, err := o.Shown(ctx)
		between()
		return shown, err
	}
	d.check(t.Context())
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	if d.disarmed {
		t.Error("the watchdog was stopped while a volume is shown")
	}
	between = func() {}
	d.shown = false
	d.check(t.Context())
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	if !d.disarmed {
		t.Error("the watchdog runs though nothing is shown")
	}
}
