package devices

import (
	"context"
	"errors"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// Removal says which device is to be removed.
type Removal struct {
	// Volume is the volume's name, for messages.
	Volume string
	// VolumeID is what the plugins call the volume.
	VolumeID string
	// Device is its name on record; "" if none was recorded.
	Device string
}

// Remove has the plugin called vendor remove the device. spec is what the device
// was made of.
func (d *Devices) Remove(ctx context.Context, vendor string, r Removal, spec provisioner.OpenSpec) error {
	p, err := d.Plugin(vendor)
	if err != nil {
		return fmt.Errorf("the host no longer sees the volume; its device remains: %w", err)
	}
	device, err := p.deviceOf(ctx, r, spec)
	if err != nil || device == "" {
		return err
	}
	return p.Delete(ctx, r.VolumeID, device)
}

// deviceOf returns the name of the volume's device; "" if there is none. One
// that was made but not recorded is found by listing, or, where the plugin
// cannot list, by making it again, which changes nothing.
func (p *Plugin) deviceOf(ctx context.Context, r Removal, spec provisioner.OpenSpec) (string, error) {
	if r.Device != "" {
		return r.Device, nil
	}
	if p.Can.List {
		return p.find(ctx, r.VolumeID)
	}
	device, err := p.Create(ctx, spec)
	if err != nil && !provisioner.Uncertain(err) {
		ctrl.LoggerFrom(ctx).V(1).Info("no device to remove", "reason", err.Error())
		return "", nil
	}
	return device, err
}

// find returns the name of the volume's device as the plugin lists it.
func (p *Plugin) find(ctx context.Context, volumeID string) (string, error) {
	all, err := p.list(ctx)
	for _, d := range all {
		if d.VolumeID == volumeID {
			return d.Name, err
		}
	}
	return "", err
}

// RemoveAnywhere asks every plugin of this DPU for the device of a volume whose
// vendor is not known any more, and has the one that knows it remove it.
func (d *Devices) RemoveAnywhere(ctx context.Context, r Removal) error {
	names, err := d.plugins.Names()
	if err != nil {
		return err
	}
	var silent error
	for _, name := range names {
		p, device, err := d.ask(ctx, name, r)
		if err != nil {
			silent = errors.Join(silent, err)
			continue
		}
		if device != "" {
			return p.Delete(ctx, r.VolumeID, device)
		}
	}
	if silent != nil {
		return fmt.Errorf("volume %s is gone, and no plugin that answers knows its device: %w", r.Volume, silent)
	}
	return nil
}

// ask returns the plugin, and the name of the volume's device if the plugin knows
// it. One that cannot tell is taken to know the device on record.
func (d *Devices) ask(ctx context.Context, name string, r Removal) (*Plugin, string, error) {
	p, err := d.Plugin(name)
	if err != nil {
		return nil, "", err
	}
	switch {
	case p.Can.List:
		device, err := p.find(ctx, r.VolumeID)
		return p, device, err
	case !p.Can.Get || r.Device == "":
		return p, r.Device, nil
	}
	err = p.Knows(ctx, r.VolumeID, r.Device)
	if errors.Is(err, provisioner.ErrNotFound) {
		return p, "", nil
	}
	return p, r.Device, err
}
