package devices

import (
	"context"
	"fmt"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// openTarget makes the device of a volume that is reached through a target.
func (h *Host) openTarget(ctx context.Context, spec provisioner.OpenSpec) error {
	want := snaprpc.TargetSpec{
		Name: records.Device(spec.VolumeID), Address: spec.PublishContext[records.ContextTargetAddress],
		Export: spec.PublishContext[records.ContextTargetExport], ReadOnly: readOnly(spec),
	}
	export, err := blocktarget.ParseExport(want.Export)
	if err != nil || want.Address == "" {
		return fmt.Errorf("%s and %s in the publish context do not name a volume of a target: was it attached by the local vendor's controller? %w",
			records.ContextTargetAddress, records.ContextTargetExport, provisioner.ErrInvalid)
	}
	there, err := h.fits(ctx, want, export)
	if err != nil {
		return err
	}
	if there {
		return h.rescan(ctx, want.Name, h.rpc.BdevMoorTargetRescan)
	}
	if err := h.remember(spec.VolumeID); err != nil {
		return err
	}
	_, err = h.rpc.BdevMoorTargetCreate(ctx, want)
	if snaprpc.IsExists(err) {
		if there, again := h.fits(ctx, want, export); again != nil || there {
			return again
		}
	}
	if err != nil {
		return fmt.Errorf("make device %s over volume %s of target %s: %w", want.Name, export.Volume, want.Address, kind(err))
	}
	return nil
}

// fits reports whether the wanted device is there. One of the same volume by a
// right that was since replaced is removed: the target lets it do nothing.
func (h *Host) fits(ctx context.Context, want snaprpc.TargetSpec, export blocktarget.Export) (bool, error) {
	b, err := h.find(ctx, want.Name)
	if err != nil || b == nil {
		return false, err
	}
	have := b.DriverSpecific.MoorTarget
	switch {
	case have == nil || have.Volume != export.Volume || have.Node != export.Node:
		return false, fmt.Errorf("device %s is there and is not over volume %s of a target: %w", b.Name, export.Volume, provisioner.ErrExists)
	case have.Fingerprint == export.Fingerprint() && have.Address == want.Address && (have.ReadOnly || !want.ReadOnly):
		return true, nil
	}
	if err := h.rpc.BdevMoorTargetDelete(ctx, b.Name); err != nil && !snaprpc.IsNotFound(err) {
		return false, fmt.Errorf("remove device %s, whose right was replaced: %w", b.Name, kind(err))
	}
	return false, nil
}

// remove removes a bdev of either kind; one that is gone is success.
func (h *Host) remove(ctx context.Context, b snaprpc.Bdev) error {
	remove := h.rpc.BdevAioDelete
	if b.DriverSpecific.MoorTarget != nil {
		remove = h.rpc.BdevMoorTargetDelete
	}
	if err := remove(ctx, b.Name); err != nil && !snaprpc.IsNotFound(err) {
		return kind(err)
	}
	return nil
}

// OpenAtEpoch opens the device of a volume under an epoch at its target. A device over
// a file takes none. See provisioner.Epochs.
func (h *Host) OpenAtEpoch(ctx context.Context, volumeID, deviceName string, epoch int64) error {
	if err := h.openAtEpoch(ctx, volumeID, deviceName, epoch); err != nil {
		return fmt.Errorf("open device %s of volume %q at epoch %d: %w", deviceName, volumeID, epoch, err)
	}
	return nil
}

func (h *Host) openAtEpoch(ctx context.Context, volumeID, deviceName string, epoch int64) error {
	name := records.Device(volumeID)
	switch {
	case epoch < 1 || volumeID == "":
		return fmt.Errorf("no volume is named, or no epoch: %w", provisioner.ErrInvalid)
	case deviceName == snaprpc.FSDevName(volumeID):
		return fmt.Errorf("a directory takes no epoch: %w", provisioner.ErrUnsupported)
	case deviceName != name:
		return fmt.Errorf("it is no device of that volume: %w", provisioner.ErrNotFound)
	}
	unlock, ok := h.locks.TryLock(volumeID)
	if !ok {
		return fmt.Errorf("another operation on it is under way: %w", provisioner.ErrBusy)
	}
	defer unlock()
	b, err := h.find(ctx, name)
	switch {
	case err != nil:
		return err
	case b == nil:
		return fmt.Errorf("it does not exist: %w", provisioner.ErrNotFound)
	case b.DriverSpecific.MoorTarget == nil:
		return fmt.Errorf("it is over a file, which takes no epoch: %w", provisioner.ErrUnsupported)
	}
	if err := h.rpc.BdevMoorTargetEpoch(ctx, name, epoch); err != nil {
		return kind(err)
	}
	return nil
}
