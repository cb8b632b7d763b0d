package dpu

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
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

// Round lists once what every SNAP service shows, and what every plugin has.
// Attachments of which the status says something else are looked at again; what
// belongs to no attachment is swept, see sweep.
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
	var alike []*storagev1alpha1.VolumeAttachment
	for i := range cached {
		e, found := seen.exposures[cached[i].Status.DPU.DeviceName]
		if exposureDiffers(&cached[i], e, found, seen.complete) {
			r.lookAgain(ctx, &cached[i])
		} else {
			alike = append(alike, &cached[i])
		}
	}
	devices, err := r.devices(ctx)
	for _, a := range alike {
		if r.unmade(ctx, a, devices) {
			r.lookAgain(ctx, a)
		}
	}
	return errors.Join(failed, err, r.sweep(ctx, seen, devices, cached))
}

// unmade reports whether the device of an attachment exists no more, in the
// words of every plugin. As in DPF plugins are asked by GetDevice whatever they
// announce; here only for devices that none of them lists. In doubt it exists.
func (r *Reconciler) unmade(ctx context.Context, a *storagev1alpha1.VolumeAttachment, devices []made) bool {
	device, volumeID := a.Status.DPU.DeviceName, kube.ClaimName(volumeName(a))
	if device == "" || volumeName(a) == "" || !a.DeletionTimestamp.IsZero() {
		return false
	}
	if slices.ContainsFunc(devices, func(d made) bool { return d.device == device && d.volumeID == volumeID }) {
		return false
	}
	names, err := r.o.Plugins.Names()
	if err != nil {
		return false
	}
	for _, name := range names {
		v, err := r.plugin(name)
		if err != nil {
			return false
		}
		if _, err := v.GetDevice(ctx, volumeID, device); !errors.Is(err, provisioner.ErrNotFound) {
			_ = r.lost(name, err)
			return false
		}
	}
	return len(names) > 0
}

func (r *Reconciler) lookAgain(ctx context.Context, a *storagev1alpha1.VolumeAttachment) {
	ctrl.LoggerFrom(ctx).Info("what there is differs from the attachment", daemon.KeyAttachment, a.Name, daemon.KeyVolume, volumeName(a))
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
