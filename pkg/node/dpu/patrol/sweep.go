package patrol

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/devices"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/provisioner/snap"
)

// volumeIDSuffix ends what plugins call a volume of ours (attachments.VolumeID). A
// device of another volume is not ours.
const volumeIDSuffix = "-pvc"

// orphan is a thing on this DPU that belongs to no attachment.
type orphan struct {
	// service shows device, or plugin made it for volumeID.
	service, plugin  string
	device, volumeID string
}

// found is what a round has found on this DPU.
type found struct {
	shown exposures.Listing
	made  []devices.Made
}

// orphans returns what is shown, and then what is made, for no attachment. A
// device is spared if an attachment records it, or names its volume; so is a
// device whose volume does not have a name of ours.
func (f found) orphans(all []storagev1alpha1.VolumeAttachment) []orphan {
	recorded, volumes := map[string]bool{}, map[string]bool{}
	for i := range all {
		if device := all[i].Status.DPU.DeviceName; device != "" {
			recorded[snap.NQN(device)] = true
		}
		if volume := all[i].VolumeName(); volume != "" {
			volumes[attachments.VolumeID(volume)] = true
		}
	}
	for _, d := range f.made {
		if volumes[d.VolumeID] {
			recorded[snap.NQN(d.Device)] = true
		}
	}
	var out []orphan
	for device := range f.shown.Exposures {
		if !recorded[snap.NQN(device)] {
			out = append(out, orphan{service: f.shown.Service[device], device: device})
		}
	}
	for _, d := range f.made {
		if !recorded[snap.NQN(d.Device)] && strings.HasSuffix(d.VolumeID, volumeIDSuffix) {
			out = append(out, orphan{plugin: d.Plugin, device: d.Device, volumeID: d.VolumeID})
		}
	}
	return out
}

// sweep removes what has belonged to no attachment for longer than a period.
// The cache raises the suspicion; the API server itself has to confirm it, and
// again just before the removal. Without an answer from there nothing is swept.
func (p *Patrol) sweep(ctx context.Context, f found, cached []storagev1alpha1.VolumeAttachment) error {
	if len(f.orphans(cached)) == 0 {
		clear(p.firstSeen)
		return nil
	}
	live, err := p.o.Attachments.Live(ctx)
	if err != nil {
		return fmt.Errorf("nothing is swept: %w", err)
	}
	var failed error
	now, still := p.o.Clock.Now(), map[orphan]time.Time{}
	for _, o := range f.orphans(live) {
		since, known := p.firstSeen[o]
		if !known {
			since = now
			ctrl.LoggerFrom(ctx).Info("belongs to no attachment, to be removed if that stays so", "device", o.device, "provider", o.service, daemon.KeyVendor, o.plugin)
		}
		still[o] = since
		if known && now.Sub(since) > p.o.Period {
			failed = errors.Join(failed, p.remove(ctx, o, f))
		}
	}
	p.firstSeen = still
	return failed
}

// remove removes one orphan, unless a pass works on it or an attachment has
// come to need it.
func (p *Patrol) remove(ctx context.Context, o orphan, f found) error {
	unlock, ok := p.o.Exposures.Lock(o.volumeID, o.device)
	if !ok {
		return nil
	}
	defer unlock()
	live, err := p.o.Attachments.Live(ctx)
	if err != nil {
		return fmt.Errorf("device %s is not swept: %w", o.device, err)
	}
	if !slices.Contains(f.orphans(live), o) {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("removing what belongs to no attachment", "device", o.device, "provider", o.service, daemon.KeyVendor, o.plugin)
	if o.service != "" {
		if err := p.o.Exposures.Service(o.service).Withdraw(ctx, o.device); err != nil {
			return fmt.Errorf("sweep: %w", err)
		}
		p.o.Changed()
		return nil
	}
	plugin, err := p.o.Devices.Plugin(o.plugin)
	if err == nil {
		err = plugin.Delete(ctx, o.volumeID, o.device)
	}
	if err != nil {
		return fmt.Errorf("sweep device %s: %w", o.device, err)
	}
	return nil
}
