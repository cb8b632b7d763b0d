package nvmeaccess

import (
	"context"
	"fmt"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// Connections are the vendor's devices on one DPU, each a connection to a subsystem.
type Connections interface {
	// HostNQN is the name under which the device is connected, empty if it is not.
	// provisioner.ErrNotFound if there is no such device.
	HostNQN(ctx context.Context, volume, device string) (string, error)
	// Connect ends what connection the device has, and its commands, and connects it
	// under the name. The device stays the same to SNAP.
	Connect(ctx context.Context, volume, device, hostNQN string) error
}

// Devices opens the devices of a DPU under epochs.
type Devices struct {
	// Base is that of Options.
	Base string
	// Admit asks the process that has the Access, which answers as that does.
	Admit func(ctx context.Context, volume string, epoch int64) (hostNQN string, err error)
	// Connections connects.
	Connections Connections
}

var _ provisioner.Epochs = Devices{}

// OpenAtEpoch implements provisioner.Epochs. A device that is connected under the epoch
// already is admitted again: the target may have forgotten it.
func (d Devices) OpenAtEpoch(ctx context.Context, volumeID, deviceName string, epoch int64) error {
	if err := d.open(ctx, volumeID, deviceName, epoch); err != nil {
		return fmt.Errorf("open device %q of volume %q at epoch %d: %w", deviceName, volumeID, epoch, err)
	}
	return nil
}

func (d Devices) open(ctx context.Context, volume, device string, epoch int64) error {
	if epoch < 1 {
		return fmt.Errorf("epochs begin at 1: %w", provisioner.ErrInvalid)
	}
	now, err := d.Connections.HostNQN(ctx, volume, device)
	if err != nil {
		return err
	}
	if is, ok := EpochOf(d.Base, now); ok && is > epoch {
		return fmt.Errorf("it is connected at epoch %d: %w", is, provisioner.ErrPrecondition)
	}
	name, err := d.Admit(ctx, volume, epoch)
	if err != nil || name == now {
		return err
	}
	return d.Connections.Connect(ctx, volume, device, name)
}
