package dpu

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/obs"
)

// patrol compares, again and again, what is shown with what should be.
type patrol struct{ r *Reconciler }

// NeedLeaderElection is false: every DPU has its own.
func (patrol) NeedLeaderElection() bool { return false }

// Start makes a round at once and then each period, until ctx ends.
func (p patrol) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("patrol")
	ctx = ctrl.LoggerInto(ctx, log)
	for {
		if err := p.r.Round(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "round")
		}
		timer := p.r.o.Clock.NewTimer(p.r.o.Jitter(p.r.o.Resync))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

// Round lists once what every SNAP service shows. Attachments of which the
// status says something else are looked at again; what belongs to no
// attachment is swept, see sweep.
func (r *Reconciler) Round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	seen, failed := r.o.Providers.list(ctx)
	if r.complete.Swap(seen.complete) != seen.complete {
		r.tellChange()
	}
	cached, err := r.attachments(ctx)
	if err != nil {
		return errors.Join(failed, err)
	}
	for i := range cached {
		e, found := seen.exposures[cached[i].Status.DPU.DeviceName]
		if exposureDiffers(&cached[i], e, found, seen.complete) {
			r.lookAgain(ctx, &cached[i])
		}
	}
	return errors.Join(failed, r.sweep(ctx, seen, cached))
}

func (r *Reconciler) lookAgain(ctx context.Context, a *storagev1alpha1.VolumeAttachment) {
	ctrl.LoggerFrom(ctx).Info("what SNAP shows differs from the attachment", obs.KeyAttachment, a.Name, obs.KeyVolume, volumeName(a))
	select {
	case r.events <- event.GenericEvent{Object: a.DeepCopy()}:
	default:
	}
}

// jitter spreads a period by a tenth both ways, so that DPUs that started
// together do not ask together for ever.
func jitter(period time.Duration) time.Duration {
	return time.Duration(float64(period) * (0.9 + 0.2*rand.Float64()))
}
