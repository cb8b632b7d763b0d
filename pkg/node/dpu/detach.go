package dpu

import (
	"context"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/devices"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/writer"
)

// remover takes a volume away for an attachment that is being deleted.
type remover struct {
	attachments *attachments.Store
	exposures   *exposures.Exposures
	devices     *devices.Devices
	fence       fence
	status      status
}

// detach takes the device away from the host, and then has the vendor remove
// it. The first half needs neither the API server nor the vendor. However old the
// cache is: an attachment that it shows as being deleted names the device that was
// shown last, since none is shown before the API server has said that it is on
// record and the attachment there to stay.
func (r remover) detach(ctx context.Context, p *pass) error {
	other, err := r.attachments.Preceding(ctx, p.attachment)
	if err != nil {
		return err
	}
	forgotten := r.fence.forgotten(p.attachment, p.dpu.DeviceName) // before this pass changes either record
	// What was shown by a right of this attachment is not left to the other.
	granted := p.dpu.Attached && writer.SingleWriter(p.attachment, nil)
	if other != nil && other.Status.DPU.DeviceName != "" && !granted {
		p.withdrawn() // the device is the other attachment's
		p.ended(&p.dpu, p.leftBy(r.exposures.Incarnation(p.dpu.Provider)))
		return p.drained(r.exposures)
	}
	if device := p.dpu.DeviceName; device != "" {
		undrained, err := r.exposures.During(ctx, &p.dpu, func() error { return r.exposures.Withdraw(ctx, device) })
		if err != nil {
			return fmt.Errorf("take device %s away from the host: %w", device, err)
		}
		p.ended(&p.dpu, undrained)
	}
	p.withdrawn()
	p.dpu.Incarnation, p.dpu.KeptEpoch = "", nil
	if err := p.drained(r.exposures); err != nil {
		return err
	}
	if err := r.fence.clearForgotten(ctx, p, forgotten); err != nil {
		return err
	}
	// It goes, so its epoch is over here whether the vendor answers or not.
	p.dpu.RetiredEpoch = max(p.dpu.RetiredEpoch, p.attachment.Spec.Epoch)
	if err := r.fence.clearLost(ctx, p); err != nil {
		return err
	}
	if p.attachment.Spec.Epoch != 0 {
		noteRetired(ctx, r.fence.journal, p, volumeUID(p.writerClaim))
	}
	r.hurryReceipt(ctx, p)
	if err := r.withdrawUnrecorded(ctx, p); err != nil {
		return err
	}
	return r.removeDevice(ctx, p)
}

// withdrawUnrecorded takes away what SNAP has of the volume if nothing stands on record of it
// and no other attachment is there of which it could be: the cluster of the DPUs was restored
// from a backup of before a replica was made ready. No vendor could remove its device before.
// What cannot be found out is left: then the vendor says that the device is in use.
func (r remover) withdrawUnrecorded(ctx context.Context, p *pass) error {
	if p.dpu.DeviceName != "" || p.volumeID == "" {
		return nil
	}
	shown, _ := r.exposures.List(ctx)
	if len(shown.Exposures) == 0 {
		return nil
	}
	made, _ := r.devices.List(ctx)
	all, err := r.attachments.Live(ctx)
	others := func(a storagev1alpha1.VolumeAttachment) bool {
		return a.Name != p.attachment.Name && a.VolumeName() == p.volumeName()
	}
	if err != nil || slices.ContainsFunc(all, others) {
		return err
	}
	for _, d := range made {
		if _, there := shown.Exposures[d.Device]; !there || d.VolumeID != p.volumeID {
			continue
		}
		if err := r.exposures.Withdraw(ctx, d.Device); err != nil {
			return fmt.Errorf("take device %s, which is on no record, away from the host: %w", d.Device, err)
		}
	}
	return nil
}

// hurryReceipt writes the status before the vendor is asked, if a fence waits for
// it: a vendor that hangs must not hold up a failover. The end of the pass writes
// it in any case, so a failure here only delays it.
func (r remover) hurryReceipt(ctx context.Context, p *pass) {
	if !p.claimRead || writer.FencedEpoch(r.attachments.Node, p.attachment, p.writerClaim) == 0 {
		return
	}
	if err := r.status.write(ctx, p, ""); err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("receipt is not written early", "reason", err.Error())
	}
}

// removeDevice has the vendor remove the volume's device.
func (r remover) removeDevice(ctx context.Context, p *pass) error {
	if p.volumeID == "" {
		return nil
	}
	volume, err := r.attachments.Volume(ctx, p.attachment)
	if err != nil {
		return fmt.Errorf("find the vendor of volume %s to remove its device: %w", p.volumeName(), err)
	}
	removal := devices.Removal{Volume: p.volumeName(), VolumeID: p.volumeID, Device: p.dpu.DeviceName}
	if volume == nil || volume.Spec.Volume.StorageVendorPluginName == "" {
		return r.devices.RemoveAnywhere(ctx, removal)
	}
	p.volume = volume
	if err := r.devices.Remove(ctx, volume.Spec.Volume.StorageVendorPluginName, removal, openSpec(p)); err != nil {
		return err
	}
	r.exposures.Anew(p.dpu.DeviceName)
	return nil
}
