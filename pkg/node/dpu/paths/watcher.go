package paths

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/provisioner"
)

const (
	// lookPeriod is the time between two looks at what SNAP tells: two calls for all
	// devices of a service.
	lookPeriod = time.Second
	// askPeriod is how often the storage of a device without I/O is asked to answer. A
	// replica has none, and is the witness that the storage can be reached by another way.
	askPeriod = 5 * time.Second
)

// Services are the SNAP services of the DPU.
type Services interface {
	// Paths tells of the ways of the devices that a service has, and which services answer.
	// Those of one that does not, or refuses to tell, are missing, and the error says so.
	Paths(ctx context.Context, devices []string) (paths []provisioner.Path, heard []string, err error)
	// ProbePath asks the storage of a device to answer; see provisioner.DPU.
	ProbePath(ctx context.Context, device string) error
}

// Options of a Watcher.
type Options struct {
	// Devices are those of this DPU's attachments on record.
	Devices func(context.Context) (map[string]attachments.OnRecord, error)
	// Services are the SNAP services of this DPU.
	Services Services
	// Grace is for how long a way has to look lost before it counts as lost, and then has
	// to look well before it counts as found.
	Grace time.Duration
	// Away is for how long a SNAP service may not answer before the ways of its devices look
	// lost; 0: for ever.
	Away time.Duration
	// Timeout bounds each look, and each question to the storage.
	Timeout time.Duration
	// Ways takes what is found out.
	Ways *Ways
	// Changed is told when what Ways.Lost returns has changed.
	Changed func()
	// Clock is the machine's if nil.
	Clock clock.WithTicker
}

// Watcher watches the ways of all devices. It is a manager.Runnable.
type Watcher struct{ o Options }

// New returns a watcher that has not looked yet.
func New(o Options) *Watcher {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Watcher{o: o}
}

// NeedLeaderElection is false: each DPU watches its own.
func (*Watcher) NeedLeaderElection() bool { return false }

// Start looks each second, until ctx ends. It waits for no question to the storage: such a
// call may hang for as long as its timeout allows.
func (w *Watcher) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("paths")
	ctx = ctrl.LoggerInto(ctx, log)
	ticker := w.o.Clock.NewTicker(lookPeriod)
	defer ticker.Stop()
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		ask, err := w.look(ctx)
		if err != nil && ctx.Err() == nil {
			log.V(1).Info("not all SNAP services tell of their paths", "reason", err.Error())
		}
		for _, device := range ask {
			asking.Go(func() { w.ask(ctx, device) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// look looks at all ways once, and returns the devices whose storage is to be asked.
func (w *Watcher) look(ctx context.Context) (ask []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()
	devices, err := w.o.Devices(ctx)
	if err != nil {
		return nil, err
	}
	j := judgement{devices: devices, bounds: bounds{w.o.Grace, w.o.Away}}
	if len(devices) > 0 {
		j.seen, j.heard, err = w.o.Services.Paths(ctx, slices.Sorted(maps.Keys(devices)))
	}
	j.now = w.o.Clock.Now()
	ask, changed := w.o.Ways.judge(ctx, j)
	if changed {
		w.o.Changed()
	}
	return ask, err
}

// ask asks the storage of a device to answer, and takes note of what comes.
func (w *Watcher) ask(ctx context.Context, device string) {
	ctx, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()
	w.o.Ways.answered(device, w.o.Services.ProbePath(ctx, device))
}
