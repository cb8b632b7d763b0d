package dpu

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/moor-storage/moor/pkg/node/dpu/devices"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/writer"
)

// maker has the vendor make the device of a volume, and lets it grow.
type maker struct {
	node      string
	devices   *devices.Devices
	exposures *exposures.Exposures
}

// findPlugin finds the volume's plugin, and checks that it makes such devices.
func (m maker) findPlugin(_ context.Context, p *pass) error {
	if p.volume == nil {
		return p.wait(missingRetry, "volume %s does not exist in the DPU cluster any more", p.volumeName())
	}
	name := p.volume.Spec.Volume.StorageVendorPluginName
	if name == "" {
		return p.wait(missingRetry, "waits for snap-controller to choose a vendor for volume %s", p.volume.Name)
	}
	plugin, err := m.devices.Plugin(name)
	if err != nil {
		return err
	}
	if mode := volumeMode(p.volume); !plugin.Can.Supports(mode) {
		return fmt.Errorf("vendor plugin %s on DPU %s makes no devices of volume mode %s: %w", name, m.node, mode, provisioner.ErrPrecondition)
	}
	p.plugin = plugin
	return nil
}

// make has the vendor make the device. A device that is new is recorded before
// anything is done with it: the pass ends, the next one goes on.
func (m maker) make(ctx context.Context, p *pass) error {
	if recorded := p.dpu.DeviceName; recorded != "" {
		err := p.plugin.Knows(ctx, p.volumeID, recorded)
		if err == nil || !errors.Is(err, provisioner.ErrNotFound) && !errors.Is(err, provisioner.ErrUnsupported) {
			return err
		}
	}
	return m.create(ctx, p)
}

func (m maker) create(ctx context.Context, p *pass) error {
	recorded := p.dpu.DeviceName
	device, err := p.plugin.Create(ctx, openSpec(p))
	if err != nil {
		return err
	}
	if p.dpu.OpenEpoch != nil {
		p.dpu.OpenEpoch = new(int64) // it may be a new one, of the same name
	}
	if device == recorded {
		return nil
	}
	if recorded != "" {
		if err := m.replaced(ctx, p, recorded); err != nil {
			return fmt.Errorf("the vendor has made device %s in place of %s, which could not be taken away from the host: %w", device, recorded, err)
		}
		p.withdrawn()
	}
	p.dpu.DeviceName, p.dpu.Capacity = device, nil
	p.dpu.OpenEpoch = p.opens(p.plugin)
	p.dpu.Provider, p.dpu.Incarnation = p.plugin.Service, m.exposures.Incarnation(p.plugin.Service)
	if p.refused != "" && !p.replica() {
		return p.waitForRight()
	}
	return p.wait(0, "device %s is made, its function is being made ready", device)
}

// opens is the epoch of a device that was just made: none, of a plugin that opens devices
// under epochs; nil if it does not, or the volume has no epochs.
func (p *pass) opens(plugin *devices.Plugin) *int64 {
	if !plugin.Can.Epochs || volumeMode(p.volume) != provisioner.Block || !writer.SingleWriter(p.attachment, p.volume) {
		return nil
	}
	return new(int64)
}

// open has the vendor open the device at the storage under the epoch of the attachment,
// each time before it is shown: what was made anew by the same name has none. A device
// that is shown already is opened under its epoch as well, so that the storage can be
// asked to refuse earlier ones. A replica's has no epoch: it writes nothing.
func (m maker) open(ctx context.Context, p *pass) error {
	if p.opens(p.plugin) == nil {
		p.dpu.OpenEpoch = nil
		return nil
	}
	if p.dpu.OpenEpoch == nil {
		p.dpu.OpenEpoch = new(int64) // made before its vendor knew epochs
	}
	if p.refused != "" || p.replica() {
		return nil
	}
	epoch := p.attachment.Spec.Epoch
	if err := p.plugin.OpenAtEpoch(ctx, p.volumeID, p.dpu.DeviceName, epoch); err != nil {
		switch {
		case errors.Is(err, provisioner.ErrUnsupported):
			p.dpu.OpenEpoch = nil
			return nil
		case errors.Is(err, provisioner.ErrUnavailable) && p.shown() && *p.dpu.OpenEpoch == epoch:
			return nil // nothing is to be done but to confirm it
		}
		return err
	}
	if *p.dpu.OpenEpoch != epoch {
		m.exposures.Anew(p.dpu.DeviceName)
	}
	p.dpu.OpenEpoch = &epoch
	return nil
}

// replaced takes a device away from the host that the vendor has made anew. Only the
// service on record can show it.
func (m maker) replaced(ctx context.Context, p *pass, device string) error {
	undrained, err := m.exposures.During(ctx, &p.dpu, func() error {
		if on := p.dpu.Provider; on == "" || on == p.plugin.Service {
			return m.exposures.WithdrawFrom(ctx, p.plugin.Service, device)
		}
		return m.exposures.Withdraw(ctx, device)
	})
	if err == nil {
		p.ended(&p.dpu, undrained)
		p.dpu.KeptEpoch = nil
	}
	return err
}

// small reports whether the device has less than the volume, as far as is known.
func (p *pass) small() bool {
	want, have := p.attachment.Spec.Capacity, p.dpu.Capacity
	return want != nil && (have == nil || have.Cmp(*want) < 0)
}

// grow lets the device have the size that the volume has now; the namespace over
// it follows. It comes before the device is shown: what is smaller than its
// volume may lack the end of a file system that grew elsewhere. A device that is
// shown stays shown meanwhile, and if it fails.
func (m maker) grow(ctx context.Context, p *pass) error {
	if !p.small() || volumeMode(p.volume) != provisioner.Block {
		return nil
	}
	want := p.attachment.Spec.Capacity.Value()
	size, err := m.size(ctx, p)
	if errors.Is(err, provisioner.ErrNotFound) || err == nil && size < want {
		// Repeated, CreateDevice lets the device have the volume's size.
		if err := m.create(ctx, p); err != nil {
			return err
		}
		size, err = m.size(ctx, p)
	}
	if err != nil {
		return err
	}
	had := p.dpu.Capacity
	p.dpu.Capacity = resource.NewQuantity(size, resource.BinarySI)
	if size < want {
		return fmt.Errorf("device %s on DPU %s has %d bytes and its volume %d: vendor plugin %s does not let it grow when CreateDevice is repeated: %w",
			p.dpu.DeviceName, m.node, size, want, p.plugin.Name, provisioner.ErrUnavailable)
	}
	if had != nil {
		ctrl.LoggerFrom(ctx).Info("the device grew", "device", p.dpu.DeviceName, "bytes", size)
	}
	return nil
}

func (m maker) size(ctx context.Context, p *pass) (int64, error) {
	size, err := m.exposures.Service(p.plugin.Service).Size(ctx, p.dpu.DeviceName)
	if err != nil {
		return 0, fmt.Errorf("SNAP service %s on DPU %s: %w", p.plugin.Service, m.node, err)
	}
	return size, nil
}
