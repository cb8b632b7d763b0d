package dpu

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner/snap"
)

// claimSuffix ends the name of every vendor claim (kube.ClaimName), which is
// what plugins call our volumes. A device of another volume is not ours.
const claimSuffix = "-pvc"

// orphan is a thing on this DPU that belongs to no attachment.
type orphan struct {
	// provider shows device, or plugin made it for volumeID.
	provider, plugin string
	device, volumeID string
}

func (o orphan) keys() []string {
	out := []string{deviceKey(o.device)}
	if o.volumeID != "" {
		out = append(out, volumeKey(o.volumeID))
	}
	return out
}

// made is a device as a plugin lists it.
type made struct{ plugin, volumeID, device string }

// findOrphans returns what is shown, and then what is made, for no attachment.
// A device is spared if an attachment records it, or names its volume; so is a
// device whose volume does not have a name of ours.
func findOrphans(seen shown, devices []made, attachments []storagev1alpha1.VolumeAttachment) []orphan {
	recorded, volumes := map[string]bool{}, map[string]bool{}
	for i := range attachments {
		if device := attachments[i].Status.DPU.DeviceName; device != "" {
			recorded[snap.NQN(device)] = true
		}
		if volume := volumeName(&attachments[i]); volume != "" {
			volumes[kube.ClaimName(volume)] = true
		}
	}
	for _, d := range devices {
		if volumes[d.volumeID] {
			recorded[snap.NQN(d.device)] = true
		}
	}
	var out []orphan
	for device := range seen.exposures {
		if !recorded[snap.NQN(device)] {
			out = append(out, orphan{provider: seen.provider[device], device: device})
		}
	}
	for _, d := range devices {
		if !recorded[snap.NQN(d.device)] && strings.HasSuffix(d.volumeID, claimSuffix) {
			out = append(out, orphan{plugin: d.plugin, device: d.device, volumeID: d.volumeID})
		}
	}
	return out
}

// sweep removes what has belonged to no attachment for longer than a period.
// The cache raises the suspicion; the API server itself has to confirm it, and
// again just before the removal. Without an answer from there nothing is swept.
func (r *Reconciler) sweep(ctx context.Context, seen shown, devices []made, cached []storagev1alpha1.VolumeAttachment) error {
	if len(findOrphans(seen, devices, cached)) == 0 {
		clear(r.firstSeen)
		return nil
	}
	live, err := r.liveAttachments(ctx)
	if err != nil {
		return fmt.Errorf("nothing is swept: %w", err)
	}
	var failed error
	now, still := r.o.Clock.Now(), map[orphan]time.Time{}
	for _, o := range findOrphans(seen, devices, live) {
		since, known := r.firstSeen[o]
		if !known {
			since = now
			ctrl.LoggerFrom(ctx).Info("belongs to no attachment, to be removed if that stays so", "device", o.device, "provider", o.provider, daemon.KeyVendor, o.plugin)
		}
		still[o] = since
		if known && now.Sub(since) > r.o.Resync {
			failed = errors.Join(failed, r.remove(ctx, o, seen, devices))
		}
	}
	r.firstSeen = still
	return failed
}

func (r *Reconciler) liveAttachments(ctx context.Context) ([]storagev1alpha1.VolumeAttachment, error) {
	return r.ours(ctx, r.o.Live, client.MatchingFields{"spec.nodeName": r.o.Node})
}

// remove removes one orphan, unless a pass works on it or an attachment has
// come to need it.
func (r *Reconciler) remove(ctx context.Context, o orphan, seen shown, devices []made) error {
	unlock, ok := r.lock(o.keys()...)
	if !ok {
		return nil
	}
	defer unlock()
	live, err := r.liveAttachments(ctx)
	if err != nil {
		return fmt.Errorf("device %s is not swept: %w", o.device, err)
	}
	confirmed := false
	for _, still := range findOrphans(seen, devices, live) {
		confirmed = confirmed || still == o
	}
	if !confirmed {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("removing what belongs to no attachment", "device", o.device, "provider", o.provider, daemon.KeyVendor, o.plugin)
	if o.provider != "" {
		if err := r.o.Providers.get(o.provider).Withdraw(ctx, o.device); err != nil {
			return fmt.Errorf("sweep: %w", err)
		}
		r.tellChange()
		return nil
	}
	v, err := r.plugin(o.plugin)
	if err == nil {
		err = r.lost(o.plugin, v.DeleteDevice(ctx, o.volumeID, o.device))
	}
	if err != nil {
		return fmt.Errorf("sweep device %s: %w", o.device, err)
	}
	return nil
}

// devices returns what the plugins that can list have made. Plugins that do
// not answer are left out, and named in the error.
func (r *Reconciler) devices(ctx context.Context) ([]made, error) {
	names, failed := r.o.Plugins.Names()
	var out []made
	for _, name := range names {
		v, err := r.plugin(name)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if !v.can.List {
			continue
		}
		listed, err := v.ListDevices(ctx)
		if err != nil {
			failed = errors.Join(failed, r.lost(name, err))
		}
		for _, d := range listed {
			out = append(out, made{plugin: name, volumeID: d.VolumeID, device: d.Name})
		}
	}
	return out, failed
}
