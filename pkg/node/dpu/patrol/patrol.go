package patrol

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/devices"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/node/dpu/journal"
)

// Options of a Patrol.
type Options struct {
	Attachments *attachments.Store
	// Queue takes the attachments that have to be looked at again.
	Queue     *attachments.Queue
	Exposures *exposures.Exposures
	Devices   *devices.Devices
	// Journal remembers under which epochs this DPU has shown volumes.
	Journal *journal.Journal
	// Changed is told when what is free or answers on this DPU may have changed.
	Changed func()
	// Withdrawn tells that something was withdrawn. Nil: it is not told.
	Withdrawn <-chan struct{}
	// Came tells that a SNAP service has come, which may have lost all: a round begins at
	// once. Nil: it is not told.
	Came <-chan struct{}
	// Period is the time between two rounds, Timeout bounds each of them.
	Period, Timeout time.Duration
	// Clock is the machine's if nil.
	Clock clock.WithTicker
	// Jitter spreads a period over the DPUs; nil means +-10 %, random.
	Jitter func(time.Duration) time.Duration
}

// Patrol makes rounds. It is a manager.Runnable, for one goroutine.
type Patrol struct {
	o Options
	// complete is whether every SNAP service answered the last round.
	complete bool
	// firstSeen is when each orphan was seen first. It may be forgotten:
	// then the orphan lives a little longer.
	firstSeen map[orphan]time.Time
}

// New returns a patrol that has made no round yet.
func New(o Options) *Patrol {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Jitter == nil {
		o.Jitter = jitter
	}
	return &Patrol{o: o, firstSeen: map[orphan]time.Time{}}
}

// NeedLeaderElection is false: every DPU has its own.
func (*Patrol) NeedLeaderElection() bool { return false }

// Start makes a round at once and then each period, until ctx ends.
func (p *Patrol) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("patrol")
	ctx = ctrl.LoggerInto(ctx, log)
	for {
		if err := p.Round(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "round")
		}
		if !p.await(ctx) {
			return nil
		}
	}
}

// Round lists once what every SNAP service shows, and what every plugin has made.
// Attachments of which the status says something else are looked at again; what
// belongs to no attachment is swept, see sweep.
func (p *Patrol) Round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	shown, failed := p.o.Exposures.List(ctx)
	if p.complete != shown.Complete {
		p.complete = shown.Complete
		p.o.Changed()
	}
	cached, err := p.o.Attachments.Cached(ctx)
	if err != nil {
		return errors.Join(failed, err)
	}
	var alike []*storagev1alpha1.VolumeAttachment
	for i := range cached {
		if differs(&cached[i], shown) {
			p.requeue(ctx, &cached[i])
		} else {
			alike = append(alike, &cached[i])
		}
	}
	made, err := p.o.Devices.List(ctx)
	for _, a := range alike {
		if p.unmade(ctx, a, made) {
			p.requeue(ctx, a)
		}
	}
	return errors.Join(failed, err, p.sweep(ctx, found{shown: shown, made: made}, cached), p.retire(ctx, cached))
}

// retire notes in the journal that the epochs are over of volumes that have no attachment
// here any more: another's word has ended them while this DPU was away, and took its holds
// off. An attachment is not made again, so nothing that it was granted counts any more,
// unless a restored cluster tells of it.
func (p *Patrol) retire(ctx context.Context, cached []storagev1alpha1.VolumeAttachment) error {
	left := p.o.Journal.Standing()
	spare(left, cached)
	if len(left) == 0 {
		return nil
	}
	live, err := p.o.Attachments.Live(ctx)
	if err != nil {
		return fmt.Errorf("nothing is retired: %w", err)
	}
	spare(left, live)
	for volume, epoch := range left {
		err = errors.Join(err, p.o.Journal.Retire("", volume, epoch))
	}
	return err
}

// spare takes out the volumes that have an attachment.
func spare(volumes map[string]int64, all []storagev1alpha1.VolumeAttachment) {
	for i := range all {
		delete(volumes, all[i].VolumeName())
	}
}

// unmade reports whether the device of an attachment exists no more.
func (p *Patrol) unmade(ctx context.Context, a *storagev1alpha1.VolumeAttachment, made []devices.Made) bool {
	volume, device := a.VolumeName(), a.Status.DPU.DeviceName
	if device == "" || volume == "" || !a.DeletionTimestamp.IsZero() {
		return false
	}
	return p.o.Devices.Unmade(ctx, attachments.VolumeID(volume), device, made)
}

func (p *Patrol) requeue(ctx context.Context, a *storagev1alpha1.VolumeAttachment) {
	ctrl.LoggerFrom(ctx).Info("what there is differs from the attachment", daemon.KeyAttachment, a.Name, daemon.KeyVolume, a.VolumeName())
	p.o.Queue.Add(a)
}

// jitter spreads a period by a tenth both ways, so that DPUs that started
// together do not go on asking together.
func jitter(period time.Duration) time.Duration {
	return time.Duration(float64(period) * (0.9 + 0.2*rand.Float64()))
}
