package virtiofs

import (
	"context"
	"fmt"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
)

// Withdraw takes a file system away from the host, also a device that others made.
func (d *Emulation) Withdraw(ctx context.Context, device string) error {
	return d.tearDown(ctx, device, anyMaker)
}

// tearDown takes a file system away from the host. When it returns nil the
// service lists no device of it, and the device was stopped before it went. The
// host is waited for a short time only: one that hangs makes it ErrUnavailable.
// Devices that were not made here are left alone if only is madeHere.
func (d *Emulation) tearDown(ctx context.Context, device string, only func(*snaprpc.FSDevice) bool) error {
	asked, found := false, d.given.get(device) != ""
	err := d.Patiently(ctx, func() error {
		return service.Drive(ctx, func(ctx context.Context) (*service.Step, error) {
			s, err := d.sharing(ctx)
			if v := s.device(device); err == nil && v != nil && only(v) {
				found = true
				return d.nextDown(v, &asked), nil
			}
			return nil, err
		})
	})
	if err != nil || !found {
		return err
	}
	return d.dropFunction(ctx, device)
}

// anyMaker is for tearDown: also what others made.
func anyMaker(*snaprpc.FSDevice) bool { return true }

// nextDown is the next step of a removal. asked is true once the host was
// asked to let go of the device.
func (d *Emulation) nextDown(v *snaprpc.FSDevice, asked *bool) *service.Step {
	switch {
	case running(v) && !*asked:
		return service.NewStep("unplug device "+v.Name, func(ctx context.Context) error {
			err := d.RPC.VirtioFSDeviceHotunplug(ctx, v.Name)
			// What was not plugged in is refused, as may be what is on its
			// way out. Whether the device can be stopped is what counts.
			if _, refused := snaprpc.Code(err); refused {
				err = nil
			}
			*asked = err == nil
			return service.Explain(err, service.Absent, "unplug device %s", v.Name)
		})
	case running(v):
		return service.NewStep("stop device "+v.Name, func(ctx context.Context) error { return d.stop(ctx, v.Name) })
	}
	return service.NewStep("destroy device "+v.Name, func(ctx context.Context) error {
		return service.Explain(d.RPC.VirtioFSDeviceDestroy(ctx, v.Name), service.Absent, "destroy device %s", v.Name)
	})
}

// stop stops a device; EBUSY is the host, which has not let go.
func (d *Emulation) stop(ctx context.Context, name string) error {
	err := d.RPC.VirtioFSDeviceStop(ctx, name)
	if snaprpc.IsBusy(err) {
		return fmt.Errorf("stop device %s: the host has not let go of it, so what it has in flight may arrive yet: %w: %w", name, service.ErrNotYet, err)
	}
	return service.Explain(err, service.Absent, "stop device %s", name)
}

// dropFunction removes the function that a removed device had. One that the
// service keeps is no part of the device any more: List tells of it. One that the
// host has still can be unplugged by its device alone, and a service that was
// restarted lists none before it has a manager: these are remembered, for the
// device when it comes back.
func (d *Emulation) dropFunction(ctx context.Context, device string) error {
	vuid := d.given.get(device)
	if vuid == "" {
		vuid = d.Recorded(ctx)[device]
	}
	if vuid == "" {
		return nil
	}
	s, err := d.sharing(ctx)
	if err != nil {
		return err
	}
	f, found := s.function(vuid)
	if !found || !pending(f) {
		d.given.set(device, vuid)
		return nil
	}
	d.given.set(device, "")
	err = d.RPC.VirtioFSFunctionDestroy(ctx, f.Manager, f.VUID)
	if _, refused := snaprpc.Code(err); refused {
		return nil
	}
	return service.Explain(err, nil, "destroy virtio-fs function %s", vuid)
}
