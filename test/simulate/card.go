package simulate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/node/heartbeat"
	"github.com/moor-storage/moor/pkg/node/selffence"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/vendorplugin"
	"github.com/moor-storage/moor/test/simulate/engine"
	"github.com/moor-storage/moor/test/simulate/hardware"
)

// card is the DPU as its node driver calls it: SNAP and the vendor's plugin.
type card struct {
	life *life
	dpu  *hardware.DPU
}

var (
	_ provisioner.DPU     = card{}
	_ vendorplugin.Plugin = card{}
)

// do has the DPU do something, and tells of it.
func (c card) do(ctx context.Context, what string, do func() error) error {
	return c.life.Call(ctx, engine.Device, what, func() error {
		err := do()
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
			c.life.Tell("%v", err)
			return err
		}
		c.life.Tell("%s", what)
		return nil
	})
}

// ask has the DPU tell something.
func (c card) ask(ctx context.Context, what string, do func() error) error {
	return c.life.Call(ctx, engine.Read, what, do)
}

// Expose is SNAP's. What is recovered is made first, and serves once that is confirmed.
func (c card) Expose(ctx context.Context, spec provisioner.ExposeSpec) (provisioner.Exposure, error) {
	what := "shows " + spec.Device
	if confirm := spec.Recover; confirm != nil && !spec.Hidden {
		if err := c.do(ctx, "makes "+spec.Device+" anew, suspended", func() error { return c.dpu.Suspended(spec) }); err != nil {
			return provisioner.Exposure{}, unavailable(err)
		}
		if err := confirm(ctx); err != nil {
			if !provisioner.Uncertain(err) {
				_ = c.Withdraw(ctx, spec.Device) // the driver withdraws it in any case
			}
			return provisioner.Exposure{}, err
		}
		what = "resumes " + spec.Device
	}
	if spec.Hidden {
		what = "prepares " + spec.Device
	}
	var shown provisioner.Exposure
	err := c.do(ctx, what, func() (err error) {
		shown, err = c.dpu.Expose(spec)
		return err
	})
	if err != nil {
		return provisioner.Exposure{}, unavailable(err)
	}
	return shown, nil
}

// Withdraw is SNAP's.
func (c card) Withdraw(ctx context.Context, device string) error {
	return unavailable(c.do(ctx, "withdraws "+device, func() error { return c.dpu.Withdraw(device) }))
}

// Discard is SNAP's.
func (c card) Discard(ctx context.Context, device, address string) error {
	return unavailable(c.do(ctx, "discards what "+address+" has kept of "+device, func() error { return c.dpu.Discard(address) }))
}

// Tidy is SNAP's: its functions are not plugged in.
func (card) Tidy(context.Context) (removed, left int, err error) { return 0, 0, nil }

// List is SNAP's.
func (c card) List(ctx context.Context) ([]provisioner.Exposure, error) {
	var out []provisioner.Exposure
	err := c.ask(ctx, "lists what is shown", func() (err error) {
		out, err = c.dpu.List()
		return err
	})
	if err != nil {
		return nil, unavailable(err)
	}
	return out, nil
}

// Functions is SNAP's.
func (c card) Functions(context.Context) ([]provisioner.FunctionCount, error) {
	return nil, provisioner.ErrUnsupported
}

// Size is SNAP's.
func (c card) Size(context.Context, string) (int64, error) { return 0, provisioner.ErrUnsupported }

// Paths is SNAP's.
func (c card) Paths(ctx context.Context, devices []string) ([]provisioner.Path, error) {
	var out []provisioner.Path
	err := c.ask(ctx, "asks for the paths", func() (err error) {
		out, err = c.dpu.Paths(devices)
		return err
	})
	return out, unavailable(err)
}

// ProbePath is SNAP's.
func (c card) ProbePath(ctx context.Context, device string) error {
	return unavailable(c.ask(ctx, "asks the storage of "+device, c.dpu.Probe))
}

// Info is the plugin's.
func (card) Info(context.Context) (vendorplugin.Info, error) {
	return vendorplugin.Info{Name: hardware.Plugin}, nil
}

// Probe is the plugin's.
func (card) Probe(context.Context) error { return nil }

// Capabilities are the plugin's.
func (card) Capabilities(context.Context) (vendorplugin.Capabilities, error) {
	return vendorplugin.Capabilities{Block: true, Get: true, List: true}, nil
}

// Provider is the plugin's.
func (card) Provider(context.Context) (string, error) { return hardware.Service, nil }

// CreateDevice is the plugin's.
func (c card) CreateDevice(ctx context.Context, spec provisioner.OpenSpec) (string, error) {
	var name string
	err := c.do(ctx, "makes the device of "+spec.VolumeID, func() (err error) {
		name, err = c.dpu.Create(spec.VolumeID)
		return err
	})
	if err != nil {
		return "", unavailable(err)
	}
	return name, nil
}

// DeleteDevice is the plugin's.
func (c card) DeleteDevice(ctx context.Context, _, device string) error {
	return unavailable(c.do(ctx, "removes "+device, func() error { return c.dpu.Delete(device) }))
}

// GetDevice is the plugin's.
func (c card) GetDevice(ctx context.Context, id, device string) (provisioner.Device, error) {
	all, err := c.ListDevices(ctx)
	if err != nil {
		return provisioner.Device{}, err
	}
	if !slices.Contains(all, provisioner.Device{VolumeID: id, Name: device}) {
		return provisioner.Device{}, provisioner.ErrNotFound
	}
	return provisioner.Device{VolumeID: id, Name: device}, nil
}

// ListDevices is the plugin's.
func (c card) ListDevices(ctx context.Context) ([]provisioner.Device, error) {
	var out []provisioner.Device
	err := c.ask(ctx, "lists devices", func() error {
		all, err := c.dpu.Devices()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			out = append(out, provisioner.Device{VolumeID: all[name], Name: name})
		}
		return err
	})
	if err != nil {
		return nil, unavailable(err)
	}
	return out, nil
}

// Epochs is the plugin's: whether the storage knows them.
func (c card) Epochs(context.Context) (bool, error) { return c.life.process.world.plan.Epochs, nil }

// OpenAtEpoch is the plugin's.
func (c card) OpenAtEpoch(ctx context.Context, id, device string, epoch int64) error {
	return unavailable(c.do(ctx, fmt.Sprintf("opens %s under epoch %d", device, epoch), func() error {
		err := c.dpu.OpenAtEpoch(device, epoch)
		c.life.process.world.Judge.Look(strings.TrimSuffix(id, "-pvc"))
		return err
	}))
}

// unavailable is an error of a call on the same machine, as the clients of SNAP and of
// plugins give it: what said nothing is not available.
func unavailable(err error) error {
	for _, known := range []error{provisioner.ErrNotFound, provisioner.ErrExhausted, provisioner.ErrPrecondition, provisioner.ErrUnsupported} {
		if errors.Is(err, known) {
			return err
		}
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
}

// plugins are the one vendor plugin of a DPU.
type plugins struct{ card card }

// Names of all plugins.
func (plugins) Names() ([]string, error) { return []string{hardware.Plugin}, nil }

// Get is the plugin.
func (p plugins) Get(string) (vendorplugin.Vetted, error) {
	return vendorplugin.Vet(context.Background(), p.card)
}

// Suspect does nothing: it is asked each time.
func (plugins) Suspect(string) {}

// States are not reported.
func (plugins) States() []moorv1alpha1.PluginState { return nil }

// ticking is the clock of a patrol, of which only the time is used.
type ticking struct{ clock.RealClock }

// Now is the virtual time.
func (ticking) Now() time.Time { return time.Now() }

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
	dice := rand.New(rand.NewPCG(l.process.dice.Uint64(), 0)) // of the heart's goroutine alone
	rate := 1 + skew*(2*l.process.dice.Float64()-1)
	changed := make(chan struct{}, 1)
	ask := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	l.heartDue = ask
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
		out := moorv1alpha1.DPUState{Host: host}
		err := l.Call(ctx, engine.Read, "looks at its host", func() error {
			host.Alive = l.process.world.linked(d)
			l.tellWays(d, &out)
			return nil
		})
		return out, err
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
		w.reset(d, "is reset by its watchdog")
	}
	w.Engine.After(looksAtWatchdog, func() { w.guard(d) })
}
