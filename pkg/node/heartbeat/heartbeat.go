// Package heartbeat writes heartbeats: of a DPU in the DPU cluster, or of a host in
// the host cluster. Each renews a Lease, which costs an API server little. The half of
// the DPUStorageNode is written when what it says has changed, and with every sixth
// heartbeat; with each one where there is no Lease, or the DPU promises something.
//
// Observers count only that the Lease, or the sequence number in the object, has
// changed, by their own clock; so a heartbeat is never skipped because nothing else has
// changed, and the sequence goes on where an earlier process left it. The package never
// decides whether a node is alive.
package heartbeat

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// DefaultPeriod is the time between two beats.
const DefaultPeriod = 10 * time.Second

// Options of a Heart.
type Options struct {
	// Client writes. Its cache is not used.
	Client client.Client
	// Live reads from the API server itself: a cache would hold every node.
	Live client.Reader
	// Name of the DPUStorageNode: the node's name in its cluster.
	Name string
	// Namespace of the Lease; empty: none is written.
	Namespace string
	// Version of this process.
	Version string
	// Period between beats, from begin to begin; DefaultPeriod if it is not
	// positive. Each beat is bounded by half of it.
	Period time.Duration
	// Exact heartbeats stand in the object, each in a write that only follows the one
	// before. For those that promise a lease: number and promise stand in the object, so each heartbeat is written
	// there, in one write, and there is no Lease.
	Exact bool
	// Seen, if not nil, is told of the object whenever it was written.
	Seen func(*moorv1alpha1.DPUStorageNode)
	// Done, if not nil, is called after each beat that was answered.
	Done func()
	// Changed, if not nil, asks for a beat at once. So does Asks, without a change.
	Changed, Asks <-chan struct{}
	// Clock is the machine's if nil.
	Clock clock.WithTicker
	// Random is uniform in [0, 1); math/rand's if nil.
	Random func() float64
}

// The waits, in parts of the period. The first spreads machines that started
// together, the others keep them apart; on the average a beat comes each period.
// A beat that failed is tried again soon: observers wait for half a period
// beyond the first.
const (
	firstWait, firstSpread   = 0.1, 0.9
	steadyWait, steadySpread = 0.95, 0.1
	retryWait, retrySpread   = 0.1, 0.1
)

// perObject is how many heartbeats there are from one write of the object to the next, if
// nothing changes: at 10 s each, people see to within a minute when the last one was.
const perObject = 6

// half puts one half as it is now into the status, and returns the heartbeat in it.
type half func(*moorv1alpha1.DPUStorageNodeStatus) *moorv1alpha1.Heartbeat

// Heart beats until it is stopped. It is a manager.Runnable of every replica.
type Heart struct {
	o Options
	// beat returns how to write the state as it is now.
	beat func(context.Context) (half, error)
	// node is the object as last answered by the server; nil if not known.
	node *moorv1alpha1.DPUStorageNode
	// lease is likewise; beats is how many there were since the object was written.
	lease *coordinationv1.Lease
	beats int
	// sole: the heart alone writes the object's status. A write then only follows the
	// one before: one that was on its way while another was accepted is refused, so that
	// what a DPU saw of its host does not take back what it has seen since.
	sole bool
}

// DPU returns the heart of a DPU: it writes status.dpu, with what state says.
// A beat is left out while state fails.
func DPU(o Options, state func(context.Context) (moorv1alpha1.DPUState, error)) *Heart {
	h := newHeart(o, func(ctx context.Context) (half, error) {
		now, err := state(ctx)
		return func(s *moorv1alpha1.DPUStorageNodeStatus) *moorv1alpha1.Heartbeat {
			if s.DPU != nil {
				now.Heartbeat = s.DPU.Heartbeat
			}
			if now.Lease != nil {
				now.Lease.Sequence = now.Sequence + 1 // of the beat that carries it
			}
			s.DPU = &now
			return &s.DPU.Heartbeat
		}, err
	})
	h.sole = true
	return h
}

// Host returns the heart of a host: it writes status.host, with what state
// says. A beat is left out while state fails.
func Host(o Options, state func(context.Context) (moorv1alpha1.HostState, error)) *Heart {
	return newHeart(o, func(ctx context.Context) (half, error) {
		now, err := state(ctx)
		return func(s *moorv1alpha1.DPUStorageNodeStatus) *moorv1alpha1.Heartbeat {
			if s.Host != nil {
				now.Heartbeat = s.Host.Heartbeat
			}
			s.Host = &now
			return &s.Host.Heartbeat
		}, err
	})
}

func newHeart(o Options, beat func(context.Context) (half, error)) *Heart {
	if o.Period <= 0 {
		o.Period = DefaultPeriod
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	return &Heart{o: o, beat: beat}
}

// NeedLeaderElection is false: every node beats for itself.
func (h *Heart) NeedLeaderElection() bool { return false }

// Start beats at once, on every change, and each period, until ctx ends. A
// beat that fails is logged and soon tried again.
func (h *Heart) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("heartbeat")
	wait := h.wait(firstWait, firstSpread)
	for ctx.Err() == nil {
		timer := h.o.Clock.NewTimer(wait)
		select {
		case <-h.o.Changed: // what it is about is in this beat
		default:
		}
		if err := h.Beat(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "beat")
			timer.Stop()
			timer = h.o.Clock.NewTimer(h.wait(retryWait, retrySpread))
		}
		select {
		case <-ctx.Done():
		case <-timer.C():
		case <-h.o.Changed:
		case <-h.o.Asks:
		}
		timer.Stop()
		wait = h.wait(steadyWait, steadySpread)
	}
	return nil
}

func (h *Heart) wait(least, spread float64) time.Duration {
	return time.Duration(float64(h.o.Period) * (least + spread*h.o.Random()))
}

// Beat writes one heartbeat; it takes half a period at most. A DPUStorageNode or a
// Lease that is missing is created. Where the Lease cannot be written the object carries
// the heartbeat.
func (h *Heart) Beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.o.Period/2)
	defer cancel()
	// A state that takes long to find out leaves time to write it.
	third, cancelState := context.WithTimeout(ctx, h.o.Period/3)
	defer cancelState()
	write, err := h.beat(third)
	if err != nil {
		return fmt.Errorf("find out the state to write into DPUStorageNode %s: %w", h.o.Name, err)
	}
	first := h.node == nil
	if first {
		h.beats = perObject
		if h.node, err = h.read(ctx); err != nil {
			return err
		}
	}
	if err := h.carry(ctx, write); err != nil {
		return err
	}
	if first {
		// Else machines that start together would write their objects together for ever.
		h.beats = max(h.beats, int(perObject*h.o.Random()))
	}
	if h.o.Done != nil {
		h.o.Done()
	}
	return nil
}

// carry renews the Lease, and writes the object if there is something to tell or it is
// due: what there is to tell does not hold the heartbeat up. Where the server refuses the
// Lease, as without the right to it, the object carries this heartbeat and the next. A
// server that is overloaded is asked for that, the larger write, only if there is
// something to tell.
func (h *Heart) carry(ctx context.Context, write half) error {
	leased := h.o.Namespace != "" && !h.o.Exact
	h.beats++
	var lost error
	if leased {
		lost = h.renew(ctx, h.node)
	}
	news := h.news(write)
	switch due := !leased || h.beats >= perObject || news; {
	case lost == nil && !due:
		return nil
	case lost != nil && (ctx.Err() != nil || !news && !refused(lost)):
		return lost
	}
	if err := h.write(ctx, write); err != nil {
		return err
	}
	if lost != nil {
		ctrl.LoggerFrom(ctx).WithName("heartbeat").Error(lost, "the heartbeat stands in the DPUStorageNode alone")
		h.beats = perObject
	}
	return nil
}

// news reports whether the state differs from what the object says. They are compared as
// the server has them: times in seconds.
func (h *Heart) news(write half) bool {
	next := h.node.Status.DeepCopy()
	if beat := write(next); beat.Version != h.o.Version {
		return true
	}
	is, err := json.Marshal(next)
	stands, also := json.Marshal(h.node.Status)
	return err != nil || also != nil || !bytes.Equal(is, stands)
}

// write writes the object.
func (h *Heart) write(ctx context.Context, write half) error {
	patch := kube.PatchStatus[*moorv1alpha1.DPUStorageNode]
	if h.sole || h.o.Exact {
		patch = kube.PatchStatusExact[*moorv1alpha1.DPUStorageNode]
	}
	_, err := patch(ctx, h.o.Client, h.node, func(n *moorv1alpha1.DPUStorageNode) {
		beat := write(&n.Status)
		beat.Sequence++
		beat.Time = metav1.NewTime(h.o.Clock.Now())
		beat.Version = h.o.Version
	})
	if err != nil {
		h.node = nil // perhaps it was deleted: the next beat looks
		return err
	}
	if h.beats = 0; h.o.Seen != nil {
		h.o.Seen(h.node)
	}
	return nil
}

// read returns the node's object, which it creates if there is none.
func (h *Heart) read(ctx context.Context) (*moorv1alpha1.DPUStorageNode, error) {
	node := &moorv1alpha1.DPUStorageNode{}
	found, err := kube.Find(ctx, h.o.Live, types.NamespacedName{Name: h.o.Name}, node)
	switch {
	case err != nil:
		return nil, err
	case found:
		return node, nil
	}
	node.Name = h.o.Name
	err = h.o.Client.Create(ctx, node)
	if apierrors.IsAlreadyExists(err) {
		_, err = kube.Find(ctx, h.o.Live, types.NamespacedName{Name: h.o.Name}, node)
	}
	if err != nil {
		return nil, fmt.Errorf("create DPUStorageNode %s: %w", h.o.Name, err)
	}
	return node, nil
}
