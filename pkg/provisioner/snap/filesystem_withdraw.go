package snap

import (
	"context"
	"fmt"

	"github.com/moor-storage/moor/internal/snaprpc"
)

// tearDownFS takes a file system away from the host. When it returns nil the
// service lists no device of it, and the device was stopped before it went. The
// host is waited for a short time only: one that hangs makes it ErrUnavailable.
// Devices that are not ours are left alone if only is ownFS.
func (d *DPU) tearDownFS(ctx context.Context, device string, only func(*snaprpc.FSDevice) bool) error {
	asked, found := false, d.given.get(device) != ""
	err := d.patiently(ctx, func() error {
		return drive(ctx, func(ctx context.Context) (*step, error) {
			s, err := d.sharing(ctx)
			if v := s.device(device); err == nil && v != nil && only(v) {
				found = true
				return d.nextDownFS(v, &asked), nil
			}
			return nil, err
		})
	})
	if err != nil || !found {
		return err
	}
	return d.dropFunction(ctx, device)
}

// anyFS is for tearDownFS: whoever made the device.
func anyFS(*snaprpc.FSDevice) bool { return true }

// nextDownFS is the next step of a removal. asked is true once the host was
// asked to let go of the device.
func (d *DPU) nextDownFS(v *snaprpc.FSDevice, asked *bool) *step {
	switch {
	case running(v) && !*asked:
		return &step{"unplug device " + v.Name, func(ctx context.Context) error {
			err := d.rpc.VirtioFSDeviceHotunplug(ctx, v.Name)
			// What was not plugged in is refused, as may be what is on its
			// way out. Whether the device can be stopped is what counts.
			if _, refused := snaprpc.Code(err); refused {
				err = nil
			}
			*asked = err == nil
			return explain(err, absent, "unplug device %s", v.Name)
		}}
	case running(v):
		return &step{"stop device " + v.Name, func(ctx context.Context) error { return d.stopFS(ctx, v.Name) }}
	}
	return &step{"destroy device " + v.Name, func(ctx context.Context) error {
		return explain(d.rpc.VirtioFSDeviceDestroy(ctx, v.Name), absent, "destroy device %s", v.Name)
	}}
}

// stopFS stops a device; EBUSY is the host, which has not let go.
func (d *DPU) stopFS(ctx context.Context, name string) error {
	err := d.rpc.VirtioFSDeviceStop(ctx, name)
	if snaprpc.IsBusy(err) {
		return fmt.Errorf("stop device %s: the host has not let go of it, so what it has in flight may arrive yet: %w: %w", name, errNotYet, err)
	}
	return explain(err, absent, "stop device %s", name)
}

// dropFunction removes the function that a removed device had. One that the
// service keeps is no part of the device any more: List tells of it. One that the
// host has still can be unplugged by its device alone, and a service that was
// restarted lists none before it has a manager: these are remembered, for the
// device when it comes back.
func (d *DPU) dropFunction(ctx context.Context, device string) error {
	vuid := d.given.get(device)
	if vuid == "" {
		vuid = d.recorded(ctx)[device]
	}
	if vuid == "" {
		return nil
	}
	s, err := d.sharing(ctx)
	if err != nil {
		return err
	}
	f, found := s.function(vuid)
	if !found || !pendingFS(f) {
		d.given.set(device, vuid)
		return nil
	}
	d.given.set(device, "")
	err = d.rpc.VirtioFSFunctionDestroy(ctx, f.Manager, f.VUID)
	if _, refused := snaprpc.Code(err); refused {
		return nil
	}
	return explain(err, nil, "destroy virtio-fs function %s", vuid)
}
