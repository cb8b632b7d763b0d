package dpf

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// ParameterEmulation says what the host sees of a volume: EmulationNVMe, which
// is the default, a block device with a file system of the host's on it or
// none; or EmulationVirtioFS, a file system of the vendor's. DPF has a flag for
// it, and a second driver.
const (
	ParameterEmulation = "emulation"
	EmulationNVMe      = "nvme"
	EmulationVirtioFS  = "virtiofs"
)

// contextEmulation is the key of the volume context; absent for NVMe.
const contextEmulation = "emulation"

// publishTag is DPF's key of the publish context for what the host mounts.
const publishTag = "nv-virtioFsTag"

// SharesFilesystem reports whether a volume with these parameters, or this volume
// context, is shown by virtio-fs.
func SharesFilesystem(keys map[string]string) bool {
	return strings.EqualFold(keys[ParameterEmulation], EmulationVirtioFS)
}

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
