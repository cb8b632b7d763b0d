package dpu

import (
	"context"
	"errors"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/writer"
)

// detach takes the device away from the host, and then has the vendor remove
// it. The first half needs neither the API server nor the vendor.
func (r *Reconciler) detach(ctx context.Context, p *pass) error {
	all, err := r.attachments(ctx)
	if err != nil {
		return err
	}
	// What was shown by a right of this attachment is not left to the other.
	granted := p.dpu.Attached && writer.SingleWriter(p.attachment, nil)
	if other := precedes(p.attachment, all); other != nil && other.Status.DPU.DeviceName != "" && !granted {
		p.withdrawn() // the device is the other attachment's
		p.message = ""
		return nil
	}
	if device := p.dpu.DeviceName; device != "" {
		if err := r.o.Providers.hide(ctx, device, ""); err != nil {
			return fmt.Errorf("take device %s away from the host: %w", device, err)
		}
	}
	p.withdrawn()
	p.message = ""
	// It goes, so its epoch is over here whether the vendor answers or not.
	p.dpu.RetiredEpoch = max(p.dpu.RetiredEpoch, p.attachment.Spec.Epoch)
	r.hurryReceipt(ctx, p)
	return r.removeDevice(ctx, p)
}

// hurryReceipt writes the status before the vendor is asked, if somebody waits
// for it: a vendor that hangs must not hold up a failover. The end of the pass
// writes it in any case, so a failure here is only one of haste.
func (r *Reconciler) hurryReceipt(ctx context.Context, p *pass) {
	if !writer.SingleWriter(p.attachment, nil) {
		return
	}
	claim, err := r.liveClaim(ctx, volumeName(p.attachment))
	if err == nil && writer.FencedEpoch(r.o.Node, p.attachment, claim) != 0 {
		err = r.report(ctx, p, nil)
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("receipt is not written early", "reason", err.Error())
	}
}

// removeDevice has the vendor remove the volume's device.
func (r *Reconciler) removeDevice(ctx context.Context, p *pass) error {
	if p.volumeID == "" {
		return nil
	}
	volume, err := r.liveVolume(ctx, p.attachment)
	if err != nil {
		return fmt.Errorf("find the vendor of volume %s to remove its device: %w", volumeName(p.attachment), err)
	}
	if volume == nil || volume.Spec.Volume.StorageVendorPluginName == "" {
		return r.removeAnywhere(ctx, p)
	}
	p.volume = volume
	v, err := r.plugin(volume.Spec.Volume.StorageVendorPluginName)
	if err != nil {
		return fmt.Errorf("the host no longer sees the volume; its device remains: %w", err)
	}
	device, err := r.deviceOf(ctx, v, p)
	if err != nil || device == "" {
		return r.lost(v.name, err)
	}
	return r.lost(v.name, v.DeleteDevice(ctx, p.volumeID, device))
}

// deviceOf returns the name of the volume's device; "" if there is none. One
// that was made but not recorded is found by listing, or, where the plugin
// cannot list, by making it again, which changes nothing.
func (r *Reconciler) deviceOf(ctx context.Context, v *vendor, p *pass) (string, error) {
	if p.dpu.DeviceName != "" {
		return p.dpu.DeviceName, nil
	}
	if v.can.List {
		return listed(ctx, v, p)
	}
	device, err := v.CreateDevice(ctx, openSpec(p))
	if err != nil && !provisioner.Uncertain(err) {
		ctrl.LoggerFrom(ctx).V(1).Info("no device to remove", "reason", err.Error())
		return "", nil
	}
	return device, err
}

// listed returns the name of the volume's device as the plugin lists it.
func listed(ctx context.Context, v *vendor, p *pass) (string, error) {
	devices, err := v.ListDevices(ctx)
	for _, d := range devices {
		if d.VolumeID == p.volumeID {
			return d.Name, err
		}
	}
	return "", err
}

// removeAnywhere asks every plugin of this DPU for the device of a volume whose
// vendor is not known any more, and has the one that knows it remove it.
func (r *Reconciler) removeAnywhere(ctx context.Context, p *pass) error {
	names, err := r.o.Plugins.Names()
	if err != nil {
		return err
	}
	var silent error
	for _, name := range names {
		v, device, err := r.askFor(ctx, name, p)
		if err != nil {
			silent = errors.Join(silent, err)
			continue
		}
		if device != "" {
			return r.lost(name, v.DeleteDevice(ctx, p.volumeID, device))
		}
	}
	if silent != nil {
		return fmt.Errorf("volume %s is gone, and no plugin that answers knows its device: %w", volumeName(p.attachment), silent)
	}
	return nil
}

// askFor returns the plugin, and the name of the volume's device if the plugin
// knows it. One that cannot tell is taken to know the device on record.
func (r *Reconciler) askFor(ctx context.Context, name string, p *pass) (*vendor, string, error) {
	v, err := r.plugin(name)
	if err != nil {
		return nil, "", err
	}
	recorded := p.dpu.DeviceName
	switch {
	case v.can.List:
		device, err := listed(ctx, v, p)
		return v, device, r.lost(name, err)
	case !v.can.Get || recorded == "":
		return v, recorded, nil
	}
	_, err = v.GetDevice(ctx, p.volumeID, recorded)
	if errors.Is(err, provisioner.ErrNotFound) {
		return v, "", nil
	}
	return v, recorded, r.lost(name, err)
}

// exposureDiffers reports whether what SNAP shows of an attachment is not what
// its status says. complete is false if some SNAP service did not answer: then
// a device that is missing proves nothing.
func exposureDiffers(a *storagev1alpha1.VolumeAttachment, seen provisioner.Exposure, found, complete bool) bool {
	dpu := a.Status.DPU
	switch {
	case !a.DeletionTimestamp.IsZero() || dpu.DeviceName == "":
		return false // a pass is due anyway, or nothing was made
	case !found:
		return (dpu.Attached || dpu.PreEmulated) && complete
	case seen.Visible != dpu.Attached || seen.Hidden != dpu.PreEmulated:
		return true
	case !dpu.Attached && !dpu.PreEmulated:
		return false
	case dpu.FsdevAttrs != nil:
		return seen.PCIAddress != dpu.PCIDeviceAddress || seen.Tag != dpu.FsdevAttrs.FilesystemTag
	case dpu.BdevAttrs == nil:
		return true
	}
	return seen.PCIAddress != dpu.PCIDeviceAddress || seen.NamespaceID != dpu.BdevAttrs.NVMeNsID || seen.UUID != dpu.BdevAttrs.NVMeUUID
}
