package hardware

import (
	"fmt"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// make makes the controller of a device. Nothing that its function has kept is left, unless that
// is to be recovered and it is the function on record: another one is a new one, hot-plugged.
func (d *DPU) make(spec provisioner.ExposeSpec, volume string) (*shown, error) {
	address, free := d.function(spec.PCIAddress)
	if !free {
		return nil, provisioner.ErrExhausted
	}
	if spec.Recover == nil || address != spec.PCIAddress {
		delete(d.kept, address)
	}
	x := &shown{volume: volume, Exposure: provisioner.Exposure{
		Device: spec.Device, PCIAddress: address, NamespaceID: max(1, spec.NamespaceID), UUID: "uuid-" + spec.Device,
	}}
	d.shown[spec.Device] = x
	return x, nil
}

// resume has a controller serve what waits in its function, of whichever epoch that is.
func (d *DPU) resume(x *shown) {
	x.suspended = false
	for _, w := range d.kept[x.PCIAddress] {
		if d.HostOn {
			d.send(x, w)
		}
	}
	delete(d.kept, x.PCIAddress)
}

// Suspended is the first half of SNAP's Expose: the controller is made, and does not serve.
func (d *DPU) Suspended(spec provisioner.ExposeSpec) error {
	if err := d.answers(); err != nil {
		return err
	}
	id, made := d.devices[spec.Device]
	if !made {
		return fmt.Errorf("device %s: %w", spec.Device, provisioner.ErrNotFound)
	}
	if d.shown[spec.Device] != nil {
		return nil
	}
	x, err := d.make(spec, volumeOf(id))
	if err == nil {
		x.suspended = true
	}
	return err
}

// Discard is SNAP's.
func (d *DPU) Discard(address string) error {
	if err := d.answers(); err != nil {
		return err
	}
	for _, x := range d.shown {
		if x.PCIAddress == address {
			return nil
		}
	}
	delete(d.kept, address)
	return nil
}

// function is one that is free; the one that is asked for, if it is.
func (d *DPU) function(want string) (string, bool) {
	taken := map[string]bool{}
	for _, x := range d.shown {
		taken[x.PCIAddress] = true
	}
	if want != "" && !taken[want] {
		return want, true
	}
	for i := range functions {
		if address := fmt.Sprintf("3b:00.%d", i); !taken[address] {
			return address, true
		}
	}
	return "", false
}
