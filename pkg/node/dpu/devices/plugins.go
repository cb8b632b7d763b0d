package devices

import (
	"context"
	"errors"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

// Plugins are the vendor plugins of this DPU, as their discovery knows them. None
// of the calls blocks.
type Plugins interface {
	// Names of all plugins, also of those that do not answer, in order.
	Names() ([]string, error)
	// Get returns the plugin called name, or says why it may not be used.
	Get(name string) (vendorplugin.Vetted, error)
	// Suspect has a plugin checked that did not answer.
	Suspect(name string)
	// States says how each is.
	States() []moorv1alpha1.PluginState
}

// Plugin is a plugin that may be used.
type Plugin struct {
	Name string
	// Can is what it announces, Service the SNAP service that it works with.
	Can     vendorplugin.Capabilities
	Service string

	calls   vendorplugin.Plugin
	plugins Plugins
}

// suspect has the plugin checked if err says that it did not answer, and returns
// err.
func (p *Plugin) suspect(err error) error {
	if errors.Is(err, provisioner.ErrUnavailable) {
		p.plugins.Suspect(p.Name)
	}
	return err
}

// Create makes the volume's device, or lets one that exists have the volume's
// size, and returns its name.
func (p *Plugin) Create(ctx context.Context, spec provisioner.OpenSpec) (device string, err error) {
	device, err = p.calls.CreateDevice(ctx, spec)
	return device, p.suspect(err)
}

// Knows returns nil if the plugin has the device: ErrNotFound if it has not,
// ErrUnsupported if it cannot tell. DPF's plugins serve this call without
// announcing it.
func (p *Plugin) Knows(ctx context.Context, volumeID, device string) error {
	_, err := p.calls.GetDevice(ctx, volumeID, device)
	return p.suspect(err)
}

// OpenAtEpoch opens a device at the storage under an epoch, if it Can.Epochs. See
// provisioner.Epochs.
func (p *Plugin) OpenAtEpoch(ctx context.Context, volumeID, device string, epoch int64) error {
	return p.suspect(p.calls.OpenAtEpoch(ctx, volumeID, device, epoch))
}

// Delete removes a device; one that is gone is success.
func (p *Plugin) Delete(ctx context.Context, volumeID, device string) error {
	return p.suspect(p.calls.DeleteDevice(ctx, volumeID, device))
}

// list returns the devices that the plugin has made, if it Can.List.
func (p *Plugin) list(ctx context.Context) ([]provisioner.Device, error) {
	all, err := p.calls.ListDevices(ctx)
	return all, p.suspect(err)
}
