package report

import (
	"context"
	"sync/atomic"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/node/dpu/devices"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// probeTimeout bounds the question how a service is: one that hangs must not
// make the DPU look dead.
const probeTimeout = 3 * time.Second

// Signal asks for reports. Asking twice before a report asks once. Safe for
// concurrent use.
type Signal struct {
	c chan struct{}
	// host asks for the last report with the host as it is now.
	host atomic.Bool
}

// NewSignal returns a signal that asks for nothing yet.
func NewSignal() *Signal { return &Signal{c: make(chan struct{}, 1)} }

// C has a value while a report is asked for.
func (s *Signal) C() <-chan struct{} { return s.c }

// Ask asks for a report at once. It never blocks.
func (s *Signal) Ask() {
	select {
	case s.c <- struct{}{}:
	default:
	}
}

// AskOfHost asks for what is known of the host to be reported at once, without
// waiting for services that may hang. It never blocks.
func (s *Signal) AskOfHost() {
	s.host.Store(true)
	s.Ask()
}

// Reporter says how this DPU is. Safe for concurrent use.
type Reporter struct {
	// Exposures and Devices are this DPU's.
	Exposures *exposures.Exposures
	Devices   *devices.Devices
	// Host says what this DPU observes of its host; nil if it does not probe it.
	Host func() *moorv1alpha1.HostObservation
	// LostPaths are the volumes whose ways to the storage are lost, and whether those of all
	// devices are; nil: they are not watched.
	LostPaths func() (lost []moorv1alpha1.LostPath, all bool)
	// Changed says when a report is due.
	Changed *Signal

	last atomic.Pointer[moorv1alpha1.DPUState]
}

// State says how this DPU is: the functions of its SNAP services, and its vendor
// plugins. What does not answer is reported as not ready; that is no error.
// Plugins are not asked: their discovery watches over them. After AskOfHost it
// answers at once, with what it knew of the others, and asks for another report.
func (r *Reporter) State(ctx context.Context) (moorv1alpha1.DPUState, error) {
	if last := r.last.Load(); r.Changed.host.Swap(false) && last != nil {
		out := *last.DeepCopy()
		out.Host = r.Host()
		r.Changed.Ask()
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out := moorv1alpha1.DPUState{Plugins: r.Devices.States()}
	out.Functions, out.SNAPReady = r.functions(ctx)
	if r.LostPaths != nil {
		out.LostPaths, out.AllPathsLost = r.LostPaths()
	}
	if r.Host != nil {
		out.Host = r.Host()
		r.last.Store(out.DeepCopy())
	}
	return out, nil
}

// functions counts the functions of all SNAP services.
func (r *Reporter) functions(ctx context.Context) (counts []moorv1alpha1.FunctionCount, ready bool) {
	total, ready := r.Exposures.Functions(ctx)
	for _, kind := range []provisioner.FunctionType{provisioner.PF, provisioner.VF, provisioner.Hotplug} {
		if c, ok := total[kind]; ok {
			counts = append(counts, moorv1alpha1.FunctionCount{Type: string(kind), Total: int64(c.Total), Free: int64(c.Free)})
		}
	}
	return counts, ready
}
