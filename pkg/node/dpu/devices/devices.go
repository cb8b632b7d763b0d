package devices

import (
	"context"
	"errors"
	"slices"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Devices are what the plugins of this DPU have made. Safe for concurrent use.
type Devices struct{ plugins Plugins }

// New returns the devices of the plugins; it calls none yet.
func New(plugins Plugins) *Devices { return &Devices{plugins: plugins} }

// Made is a device as a plugin lists it.
type Made struct{ Plugin, VolumeID, Device string }

// Plugin returns the plugin called name, or says why it may not be used.
func (d *Devices) Plugin(name string) (*Plugin, error) {
	vetted, err := d.plugins.Get(name)
	if err != nil {
		return nil, err
	}
	return &Plugin{Name: name, Can: vetted.Can, Service: vetted.Provider, calls: vetted.Plugin, plugins: d.plugins}, nil
}

// States says how each plugin is, without a call to any.
func (d *Devices) States() []moorv1alpha1.PluginState { return d.plugins.States() }

// List returns what the plugins that can list have made. Plugins that do not
// answer are left out, and named in the error.
func (d *Devices) List(ctx context.Context) ([]Made, error) {
	names, failed := d.plugins.Names()
	var out []Made
	for _, name := range names {
		p, err := d.Plugin(name)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if !p.Can.List {
			continue
		}
		listed, err := p.list(ctx)
		if err != nil {
			failed = errors.Join(failed, err)
		}
		for _, device := range listed {
			out = append(out, Made{Plugin: name, VolumeID: device.VolumeID, Device: device.Name})
		}
	}
	return out, failed
}

// Unmade reports whether the plugin that lists the device, or if none does every plugin,
// says that it does not have it: what a plugin still lists may be of no use any more. As
// in DPF plugins are asked whatever they announce. In doubt the device exists.
func (d *Devices) Unmade(ctx context.Context, volumeID, device string, listed []Made) bool {
	names, err := d.plugins.Names()
	if err != nil {
		return false
	}
	if i := slices.IndexFunc(listed, func(m Made) bool { return m.Device == device && m.VolumeID == volumeID }); i >= 0 {
		names = []string{listed[i].Plugin}
	}
	for _, name := range names {
		p, err := d.Plugin(name)
		if err != nil || !errors.Is(p.Knows(ctx, volumeID, device), provisioner.ErrNotFound) {
			return false
		}
	}
	return len(names) > 0
}
