package devices

import (
	"context"
	"errors"
	"fmt"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// openFilesystem makes the function of a file system ready to be mounted.
func (h *Host) openFilesystem(ctx context.Context, spec provisioner.OpenSpec, p opened) (provisioner.Device, error) {
	if spec.Mode == provisioner.Block {
		return provisioner.Device{}, fmt.Errorf("it is shown as a file system, not as a block device: %w", provisioner.ErrInvalid)
	}
	if err := h.finder.WaitShared(ctx, p.Identity); err != nil {
		return provisioner.Device{}, hostError(err)
	}
	h.took(spec.VolumeID, p)
	return filesystemDevice(spec.VolumeID, p), nil
}

func filesystemDevice(volume string, p opened) provisioner.Device {
	return provisioner.Device{VolumeID: volume, Name: p.tag, Tag: p.tag, Mode: provisioner.Filesystem}
}

// lookupFilesystem returns the file system if its function is still there.
func (h *Host) lookupFilesystem(volume string, p opened) (provisioner.Device, error) {
	err := h.finder.SharedBy(p.Identity)
	if errors.Is(err, hostdev.ErrAbsent) {
		return provisioner.Device{}, fmt.Errorf("file system of volume %q is gone: %w: %w", volume, err, provisioner.ErrNotFound)
	}
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("look up volume %q: %w", volume, err)
	}
	return filesystemDevice(volume, p), nil
}
