package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/moor-storage/moor/pkg/provisioner"
)

const prefix = "example-" // of the names of this vendor's block devices

// host makes the devices of one DPU. It keeps nothing in memory: SNAP knows
// which devices there are, also after a restart of the plugin.
type host struct{ snap, volumes string }

func device(volume string) provisioner.Device {
	return provisioner.Device{VolumeID: volume, Name: prefix + volume, Mode: provisioner.Block}
}

func (h host) Open(ctx context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	if !filepath.IsLocal(spec.VolumeID) {
		return provisioner.Device{}, fmt.Errorf("volume %q is no file name: %w", spec.VolumeID, provisioner.ErrInvalid)
	}
	d := device(spec.VolumeID)
	err := h.call(ctx, "bdev_aio_create", map[string]any{"name": d.Name, "filename": filepath.Join(h.volumes, d.VolumeID), "block_size": 512}, nil)
	if errors.Is(err, syscall.EEXIST) { // repeated; the volume may have grown since
		err = h.call(ctx, "bdev_aio_rescan", map[string]any{"name": d.Name}, nil)
	}
	return d, err
}

func (h host) Close(ctx context.Context, volume, _ string) error {
	err := h.call(ctx, "bdev_aio_delete", map[string]any{"name": prefix + volume}, nil)
	if errors.Is(err, syscall.ENODEV) { // gone already
		return nil
	}
	return err
}

func (h host) Lookup(ctx context.Context, volume string) (provisioner.Device, error) {
	all, err := h.List(ctx)
	if err == nil && !slices.Contains(all, device(volume)) {
		err = fmt.Errorf("device of volume %s: %w", volume, provisioner.ErrNotFound)
	}
	return device(volume), err
}

func (h host) List(ctx context.Context) (devices []provisioner.Device, err error) {
	var bdevs []struct{ Name string }
	err = h.call(ctx, "bdev_get_bdevs", nil, &bdevs)
	for _, b := range bdevs {
		if volume, ours := strings.CutPrefix(b.Name, prefix); ours {
			devices = append(devices, device(volume))
		}
	}
	slices.SortFunc(devices, func(a, b provisioner.Device) int { return strings.Compare(a.VolumeID, b.VolumeID) })
	return devices, err
}
