package vendorplugin

import (
	"context"
	"fmt"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// HostOf is the Host interface over the gRPC API: what a plugin does, as the
// node driver sees it. With it provisionertest.TestHost holds any plugin to the
// contract. The plugin has to serve GetDevice and ListDevices.
func HostOf(d Devices) provisioner.Host { return host{d} }

type host struct{ d Devices }

func (h host) Open(ctx context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	name, err := h.d.CreateDevice(ctx, spec)
	if err != nil {
		return provisioner.Device{}, err
	}
	return h.d.GetDevice(ctx, spec.VolumeID, name)
}

func (h host) Close(ctx context.Context, volumeID, deviceName string) error {
	return h.d.DeleteDevice(ctx, volumeID, deviceName)
}

func (h host) List(ctx context.Context) ([]provisioner.Device, error) {
	list, err := h.d.ListDevices(ctx)
	if err != nil {
		return nil, err
	}
	for i, d := range list {
		if list[i], err = h.d.GetDevice(ctx, d.VolumeID, d.Name); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (h host) Lookup(ctx context.Context, volumeID string) (provisioner.Device, error) {
	list, err := h.List(ctx)
	if err != nil {
		return provisioner.Device{}, err
	}
	for _, d := range list {
		if d.VolumeID == volumeID {
			return d, nil
		}
	}
	return provisioner.Device{}, fmt.Errorf("device of volume %s: %w", volumeID, provisioner.ErrNotFound)
}
