package fleet

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/node/heartbeat"
	"github.com/moor-storage/moor/test/kit"
)

// Clients reach both API servers, without caches and without limits.
type Clients struct{ Host, DPU client.WithWatch }

// Names are the names of a host and its DPU by number. All names of a kind have
// the same length.
type Names struct{ Host, DPU string }

// NamesOf are those of host number i.
func NamesOf(i int) Names {
	return Names{Host: fmt.Sprintf("host-%05d", i), DPU: fmt.Sprintf("dpu-%05d", i)}
}

// Fleet is the hosts and DPUs that beat.
type Fleet struct {
	clients Clients
	slow    float64

	done  sync.WaitGroup
	mu    sync.Mutex
	hosts map[int]*host
	since time.Time
	beats atomic.Int64
}

// host is one host with its DPU.
type host struct {
	names Names
	// stop ends the host's half and its kubelet, stopDPU the DPU's.
	stop, stopDPU context.CancelFunc
	// rate is how often each half beats in a period; 0 is not at all.
	rate float64
	dead atomic.Bool
	// word makes the DPU beat at once.
	word chan struct{}
}

// New makes a fleet in which nothing beats yet. All its periods are slow times the
// real ones.
func New(clients Clients, slow float64) *Fleet {
	return &Fleet{clients: clients, slow: slow, hosts: map[int]*host{}, since: time.Now()}
}

// Period is the time between two beats of one sender.
func (f *Fleet) Period() time.Duration { return f.slowed(heartbeat.DefaultPeriod) }

func (f *Fleet) slowed(d time.Duration) time.Duration { return time.Duration(float64(d) * f.slow) }

// Start lets hosts first to last-1 beat until ctx ends, both halves and the
// kubelet. Those that beat already are left alone. Their first beats are spread over a
// while.
func (f *Fleet) Start(ctx context.Context, first, last int, within time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := first; i < last; i++ {
		if f.hosts[i] == nil {
			f.hosts[i] = f.start(ctx, NamesOf(i), within)
		}
	}
	f.since = time.Now()
	f.beats.Store(0)
}

func (f *Fleet) start(ctx context.Context, names Names, within time.Duration) *host {
	h := &host{names: names, word: make(chan struct{}, 1)}
	f.wake(ctx, h, 1, within)
	return h
}

// wake lets a host beat so often in each period, from a moment within a while on.
func (f *Fleet) wake(ctx context.Context, h *host, rate float64, within time.Duration) {
	onHost, stop := context.WithCancel(ctx)
	onDPU, stopDPU := context.WithCancel(ctx)
	h.stop, h.stopDPU, h.rate = stop, stopDPU, rate
	period := time.Duration(float64(f.Period()) / rate)
	hostHalf := heartbeat.Host(f.options(f.clients.Host, h.names.Host, period, nil), func(context.Context) (moorv1alpha1.HostState, error) {
		return moorv1alpha1.HostState{MaxVolumes: functions}, nil
	})
	dpuHalf := heartbeat.DPU(f.options(f.clients.DPU, h.names.DPU, period, h.word), h.report)
	f.done.Go(func() { f.beat(onHost, hostHalf, within) })
	f.done.Go(func() { f.beat(onDPU, dpuHalf, within) })
	f.done.Go(func() { f.kubelet(onHost, h.names.Host, within) })
}

// options of a heart: those of the real programs.
func (f *Fleet) options(c client.Client, name string, period time.Duration, changed <-chan struct{}) heartbeat.Options {
	return heartbeat.Options{
		Client: c, Live: c, Name: name, Namespace: kit.Namespace, Version: "scale", Period: period, Changed: changed, Clock: clock.RealClock{},
		Done: func() { f.beats.Add(1) },
	}
}

// beat runs a heart, from a moment within a while on: machines do not start in the
// same second.
func (f *Fleet) beat(ctx context.Context, h *heartbeat.Heart, within time.Duration) {
	if Pause(ctx, spread(within)) {
		_ = h.Start(ctx)
	}
}

// functions is how many virtual functions a DPU has.
const functions = 64

// report is what a DPU says of itself.
func (h *host) report(context.Context) (moorv1alpha1.DPUState, error) {
	out := moorv1alpha1.DPUState{
		SNAPReady: true, Plugins: []moorv1alpha1.PluginState{{Name: "local", Provider: "nvidia", Version: "scale", Ready: true}},
		Functions: []moorv1alpha1.FunctionCount{{Type: "pf", Total: 2, Free: 2}, {Type: "vf", Total: functions, Free: functions / 2}},
		Host:      &moorv1alpha1.HostObservation{Alive: true, Evidence: "it answers"},
	}
	if h.dead.Load() {
		out.Host = &moorv1alpha1.HostObservation{Evidence: "its link is down"}
	}
	return out, nil
}

// Kill takes the power of a host away: its heartbeat and its kubelet stop, and its
// DPU, which stays up, says at once that it sees the host dead.
func (f *Fleet) Kill(i int) {
	f.mu.Lock()
	h := f.hosts[i]
	h.dead.Store(true)
	h.stop()
	f.mu.Unlock()
	h.word <- struct{}{}
}

// Hasten makes both halves of a host beat so many times too often, until ctx ends.
func (f *Fleet) Hasten(ctx context.Context, i int, times float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.hosts[i]
	h.stop()
	h.stopDPU()
	f.wake(ctx, h, times, f.slowed(heartbeat.DefaultPeriod/10))
}

// Silence makes hosts first to last-1 fall silent with their DPUs, as behind a
// network that is gone: nothing dies.
func (f *Fleet) Silence(first, last int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := first; i < last; i++ {
		if h := f.hosts[i]; !h.dead.Load() {
			h.stop()
			h.stopDPU()
			h.rate = 0
		}
	}
}

// Return lets all that are silent beat again, all at once, until ctx ends.
func (f *Fleet) Return(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.hosts {
		if h.rate == 0 {
			f.wake(ctx, h, 1, 0)
		}
	}
}

// Beats are how many beats of the two halves were answered since the fleet was
// counted last, and how many were due.
func (f *Fleet) Beats() Beats {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := Beats{Answered: float64(f.beats.Swap(0))}
	for _, h := range f.hosts {
		out.senders += h.rate // the DPU
		if !h.dead.Load() {
			out.senders += h.rate
		}
	}
	out.Due = out.senders * float64(time.Since(f.since)) / float64(f.Period())
	f.since = time.Now()
	return out
}

// Counted is how long beats have been counted.
func (f *Fleet) Counted() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.since)
}

// Wait returns when all has stopped, after the context of Start has ended.
func (f *Fleet) Wait() { f.done.Wait() }

// Pause waits; it returns false if ctx ended first.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// images make a Node as large as they are: a kubelet reports up to 50.
func images() []corev1.ContainerImage {
	var out []corev1.ContainerImage
	for i := range 50 {
		out = append(out, corev1.ContainerImage{
			Names: []string{
				fmt.Sprintf("registry.example.com/team-%d/service-%d@sha256:%064x", i%7, i, i),
				fmt.Sprintf("registry.example.com/team-%d/service-%d:v1.%d.0", i%7, i, i),
			},
			SizeBytes: int64(100_000_000 + i),
		})
	}
	return out
}
