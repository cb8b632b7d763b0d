package hostprobe

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Prober is one way to probe the host.
type Prober interface {
	// Probe probes once, and takes no longer than ctx allows. It says what
	// answered, and a detail such as the kernel's error, or "".
	Probe(ctx context.Context) (Answer, string)
}

// Options of a Watcher.
type Options struct {
	Prober Prober
	Limits Limits
	// Paths tells of the I/O of the host's devices, as far as it is known; may be nil. It is
	// asked while the host is silent.
	Paths func(context.Context) []provisioner.Path
	// OnChange is called, if not nil, when what is Observed has changed. It must not
	// block.
	OnChange func()
	// Clock is the machine's if nil.
	Clock clock.WithTicker
}

// Watcher probes the host again and again. It is a manager.Runnable.
type Watcher struct {
	o      Options
	worker worker
	asking sync.WaitGroup

	mu    sync.Mutex
	now   opinion
	since metav1.Time
}

// NewWatcher returns a watcher; call Start.
func NewWatcher(o Options) *Watcher {
	if o.Limits.Timeout <= 0 {
		o.Limits.Timeout = DefaultTimeout
	}
	if o.Limits.Misses <= 0 {
		o.Limits.Misses = DefaultMisses
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Watcher{o: o, worker: worker{paths: o.Paths, now: o.Clock.Now}}
}

// NeedLeaderElection is false: every DPU has a host of its own.
func (w *Watcher) NeedLeaderElection() bool { return false }

// Start probes each Interval until ctx ends.
func (w *Watcher) Start(ctx context.Context) error {
	ticker := w.o.Clock.NewTicker(Interval)
	defer ticker.Stop()
	defer w.asking.Wait()
	for {
		w.probe(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// probe probes once, and tells if that has changed what is known.
func (w *Watcher) probe(ctx context.Context) {
	began := w.o.Clock.Now()
	bounded, cancel := context.WithTimeout(ctx, Interval)
	defer cancel()
	if w.silent() {
		w.worker.ask(ctx, w.asking.Go)
	}
	answer, detail := w.o.Prober.Probe(bounded)
	if ctx.Err() != nil {
		return // cut short: it proves nothing
	}
	probe := Probe{Answer: answer, Detail: detail, Began: began, Ended: w.o.Clock.Now(), Worked: w.worker.begun()}
	w.mu.Lock()
	before := w.now
	w.now = before.next(probe, w.o.Limits)
	after := w.now
	if before.verdict != after.verdict {
		w.since = metav1.NewTime(probe.Ended)
	}
	w.mu.Unlock()
	if before.verdict == after.verdict && before.evidence == after.evidence {
		return
	}
	ctrl.LoggerFrom(ctx).Info("what this DPU observes of its host has changed", "alive", after.verdict == Alive, "evidence", after.evidence)
	if w.o.OnChange != nil {
		w.o.OnChange()
	}
}

// silent reports whether the host is silent, and not dead yet.
func (w *Watcher) silent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now.verdict == Alive && w.now.misses > 0
}

// Observed is what is known of the host; nil if it has not been seen alive yet.
func (w *Watcher) Observed() *moorv1alpha1.HostObservation {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.verdict == Unknown {
		return nil
	}
	return &moorv1alpha1.HostObservation{Alive: w.now.verdict == Alive, Since: w.since, Evidence: w.now.evidence}
}
