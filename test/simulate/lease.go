package simulate

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/node/heartbeat"
	"github.com/moor-storage/moor/pkg/node/selffence"
	"github.com/moor-storage/moor/test/simulate/engine"
	"github.com/moor-storage/moor/test/simulate/hardware"
)

const (
	// leaseDuration and watchdogTimeout are the defaults of snap-node-driver.
	leaseDuration   = 30 * time.Second
	watchdogTimeout = 30 * time.Second
	// looksAtWatchdog is how often it is played whether a watchdog resets its machine.
	looksAtWatchdog = time.Second
	// rebooting is how long a machine takes to start after that.
	rebooting = 6 * time.Second
	// skew is by how much the clock of a DPU may be too slow or too fast.
	skew = 0.0005
)

// keepLease has a DPU promise to stop by itself: the keeper of its lease runs, and its heart beats
// through the API server. Both end with the process.
func (l *life) keepLease(d *hardware.DPU, store *attachments.Store, shown *exposures.Exposures) *selffence.Keeper {
	w := l.process.world
	dice := rand.New(rand.NewPCG(uint64(w.Engine.Elapsed()), uint64(d.Boots))) // of this goroutine alone
	rate := 1 + skew*(2*l.process.dice.Float64()-1)
	changed := make(chan struct{}, 1)
	ask := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	keeper := selffence.New(selffence.Options{
		Duration: leaseDuration, Drain: hardware.DrainBound, Timeout: watchdogTimeout,
		Open:  func() (selffence.Watchdog, error) { return dog{l, d}, dog{l, d}.Feed() },
		Shown: shown.ShowsSingleWriter, Withdraw: shown.WithdrawSingleWriter, Changed: ask,
		Now: func() time.Duration { return time.Duration(rate * float64(w.Engine.Elapsed())) },
	})
	heart := heartbeat.DPU(heartbeat.Options{
		Client: store.DPU.Client, Live: store.DPU.Live, Name: d.Name, Exact: true, Seen: keeper.Answered, Changed: changed, Random: dice.Float64,
	}, keeper.State(func(ctx context.Context) (moorv1alpha1.DPUState, error) {
		host := &moorv1alpha1.HostObservation{}
		err := l.Call(ctx, engine.Read, "looks at its host", func() error {
			host.Alive = d.HostOn
			return nil
		})
		return moorv1alpha1.DPUState{Host: host}, err
	}))
	ctx := ctrl.LoggerInto(l.Context(), logr.Discard())
	l.Go("lease", func() { _ = keeper.Run(ctx) }, l.process.end) // it ends before the process if it cannot keep the promise
	l.Go("heart", func() { _ = heart.Start(ctx) }, func() {})
	return keeper
}

// dog is the watchdog of a DPU as a process has it open. A process can stand still before it feeds it.
type dog struct {
	life *life
	dpu  *hardware.DPU
}

// Timeout of the watchdog.
func (dog) Timeout() time.Duration { return watchdogTimeout }

// Feed has the DPU live for one more timeout.
func (g dog) Feed() error {
	return g.life.Call(context.Background(), engine.Read, "feeds the watchdog", func() error {
		g.dpu.Feed(g.life.process.world.Engine.Elapsed() + watchdogTimeout)
		return nil
	})
}

// Close stops it, or leaves it running.
func (g dog) Close(disarm bool) error {
	if !disarm {
		return nil
	}
	return g.life.Call(context.Background(), engine.Read, "stops the watchdog", func() error {
		g.dpu.Feed(0)
		return nil
	})
}

// guard resets a DPU whose watchdog was not fed. Linux feeds it once more when the process that has
// it open ends.
func (w *World) guard(d *hardware.DPU) {
	if d.Bitten(w.Engine.Elapsed()) {
		w.Engine.Tell(d.Name, "is reset by its watchdog")
		d.PowerOff()
		w.processOf(d.Name).end()
		w.Engine.After(rebooting, func() { w.bootDPU(d) })
	}
	w.Engine.After(looksAtWatchdog, func() { w.guard(d) })
}
