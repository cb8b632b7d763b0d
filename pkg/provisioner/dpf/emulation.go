package dpf

import (
	"context"
	"errors"
	"fmt"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// openShared makes the function of a file system ready to be mounted.
func (h *Host) openShared(ctx context.Context, spec provisioner.OpenSpec, p place) (provisioner.Device, error) {
	if spec.Mode == provisioner.Block {
		return provisioner.Device{}, fmt.Errorf("it is shown as a file system, not as a block device: %w", provisioner.ErrInvalid)
	}
	if err := h.finder.WaitShared(ctx, p.Address); err != nil {
		return provisioner.Device{}, hostError(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open[spec.VolumeID] = p
	return sharedDevice(spec.VolumeID, p), nil
}

func sharedDevice(volume string, p place) provisioner.Device {
	return provisioner.Device{VolumeID: volume, Name: p.tag, Tag: p.tag, Mode: provisioner.Filesystem}
}

// lookShared returns the file system if its function is still there.
func (h *Host) lookShared(volume string, p place) (provisioner.Device, error) {
	err := h.finder.SharedBy(p.Address)
	if errors.Is(err, hostdev.ErrAbsent) {
		return provisioner.Device{}, fmt.Errorf("file system of volume %q is gone: %w: %w", volume, err, provisioner.ErrNotFound)
	}
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("look up volume %q: %w", volume, err)
	}
	return sharedDevice(volume, p), nil
}
