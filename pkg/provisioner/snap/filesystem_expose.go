package snap

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// What devices are made with: DPF's values.
const (
	defaultQueues  = 8
	queueSize      = 256
	driverPlatform = "x86_64"
	// parameterQueues is the one parameter of a device that a StorageClass
	// can set: the number of its request queues.
	parameterQueues = "num_request_queues"
)

// maxTries is how often a device is made within one call.
const maxTries = 3

// fsBuild is a virtio-fs exposure being made.
type fsBuild struct {
	d      *DPU
	spec   provisioner.ExposeSpec
	queues int64
	// tries counts how often the device was to be made.
	tries int
	// plugged and unplugged are true once the host was asked.
	plugged, unplugged bool
}

// exposeFS shows an fsdev to the host, see Expose. A hidden one has its device
// running on a function that is not plugged in.
func (d *DPU) exposeFS(ctx context.Context, spec provisioner.ExposeSpec) (provisioner.Exposure, error) {
	if err := checkFS(spec); err != nil {
		return provisioner.Exposure{}, err
	}
	queues, err := strconv.ParseInt(cmp.Or(spec.Parameters[parameterQueues], strconv.Itoa(defaultQueues)), 10, 32)
	if err != nil || queues < 1 {
		return provisioner.Exposure{}, fmt.Errorf("parameter %s is %q: a number from 1 on is wanted: %w", parameterQueues, spec.Parameters[parameterQueues], provisioner.ErrInvalid)
	}
	b := &fsBuild{d: d, spec: spec, queues: queues}
	err = drive(ctx, d.nextService)
	if err == nil {
		err = drive(ctx, b.next)
	}
	if err != nil {
		return provisioner.Exposure{}, b.undo(ctx, err)
	}
	var e provisioner.Exposure
	err = d.patiently(ctx, func() (err error) {
		if e, err = b.look(ctx); err == nil && (e.Hidden != spec.Hidden || e.Visible == spec.Hidden) {
			err = fmt.Errorf("the host has not acted on its function yet: %w", errNotYet)
		}
		return err
	})
	return e, err
}

// undo removes what was made before a final error, as build.undo does.
func (b *fsBuild) undo(ctx context.Context, cause error) error {
	if provisioner.Uncertain(cause) {
		return cause
	}
	if err := b.d.tearDownFS(ctx, b.spec.Device, ownFS); err != nil {
		return fmt.Errorf("%w; and what was made so far could not be removed, repeat: %w: %w", cause, provisioner.ErrUnavailable, err)
	}
	return cause
}

func (b *fsBuild) look(ctx context.Context) (provisioner.Exposure, error) {
	s, err := b.d.sharing(ctx)
	if err != nil {
		return provisioner.Exposure{}, err
	}
	v := s.device(b.spec.Device)
	if v == nil {
		return provisioner.Exposure{}, fmt.Errorf("the device has vanished: %w", provisioner.ErrUnavailable)
	}
	f, known := b.function(s)
	return exposureFS(v, f, known), nil
}

func (b *fsBuild) function(s sharing) (snaprpc.FSFunction, bool) {
	return b.d.functionOf(s, b.spec.Device, b.spec.VUID, b.spec.PCIAddress)
}

// nextService says what the service lacks to show any file system. It is left
// so when the last one goes: another may be on its way.
func (d *DPU) nextService(ctx context.Context) (*step, error) {
	transports, err := d.rpc.VirtioFSTransports(ctx)
	if err != nil {
		return nil, explain(err, unread, "list the virtio-fs transports (does this SNAP service offer virtio-fs?)")
	}
	at := slices.IndexFunc(transports, func(t snaprpc.FSTransport) bool { return t.Name == transport })
	if at < 0 {
		return &step{"create the transport", func(ctx context.Context) error {
			return explain(d.rpc.VirtioFSTransportCreate(ctx, transport), nil, "create transport %s", transport)
		}}, nil
	}
	managers, err := d.rpc.VirtioFSManagers(ctx)
	if err != nil {
		return nil, explain(err, unread, "list the managers of virtio-fs")
	}
	switch {
	case len(managers) == 0:
		return &step{"create the manager", d.createManager}, nil
	case transports[at].State != snaprpc.TransportStarted:
		return &step{"start the transport", func(ctx context.Context) error {
			return explain(d.rpc.VirtioFSTransportStart(ctx, transport), nil, "start transport %s", transport)
		}}, nil
	}
	return nil, nil
}

func (d *DPU) createManager(ctx context.Context) error {
	possible, err := d.rpc.VirtioFSPossibleManagers(ctx)
	if err != nil {
		return explain(err, unread, "list the possible managers of virtio-fs")
	}
	if len(possible) == 0 {
		return fmt.Errorf("no device of this DPU can manage virtio-fs functions: is virtio-fs emulation on in its firmware? %w", provisioner.ErrUnsupported)
	}
	return explain(d.rpc.VirtioFSManagerCreate(ctx, possible[0].Name), nil, "create manager %s", possible[0].Name)
}

// next says what is missing of the exposure. The order is DPF's. A device whose
// function is not known, which is one that a crash left or that somebody else
// made, is made anew: the host can use only what was recorded.
func (b *fsBuild) next(ctx context.Context) (*step, error) {
	s, err := b.d.sharing(ctx)
	if err != nil {
		return nil, err
	}
	v := s.device(b.spec.Device)
	if v == nil {
		if b.tries++; b.tries > maxTries {
			return nil, fmt.Errorf("the device does not stay: %w", provisioner.ErrUnavailable)
		}
		return &step{"make the device", b.make(s)}, nil
	}
	if !ownFS(v) {
		return nil, fmt.Errorf("device %s, which is not ours, shows it: remove that device: %w", v.Name, provisioner.ErrPrecondition)
	}
	f, known := b.function(s)
	switch {
	case !running(v) && b.d.given.get(b.spec.Device) == "", !known:
		return &step{"remove a device of which the function is not known", func(ctx context.Context) error {
			return b.d.tearDownFS(ctx, b.spec.Device, ownFS)
		}}, nil
	case !running(v):
		return &step{"start the device", func(ctx context.Context) error {
			return explain(b.d.rpc.VirtioFSDeviceStart(ctx, v.Name), startRefused, "start device %s", v.Name)
		}}, nil
	case !b.spec.Hidden && pendingFS(f) && !b.plugged:
		return &step{"plug in the device", b.plug(v.Name)}, nil
	case b.spec.Hidden && !pendingFS(f) && !b.unplugged:
		return &step{"unplug the device", func(ctx context.Context) error {
			b.unplugged = true
			return explain(b.d.rpc.VirtioFSDeviceHotunplug(ctx, v.Name), nil, "unplug device %s", v.Name)
		}}, nil
	}
	return nil, nil
}

// startRefused: what a device needs was there a moment ago.
var startRefused = map[int]error{
	snaprpc.CodeInvalid:  provisioner.ErrUnavailable,
	snaprpc.CodeNoDevice: provisioner.ErrUnavailable,
}

// plug begins to plug in the device; one that is on its way is as good.
func (b *fsBuild) plug(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		err := b.d.rpc.VirtioFSDeviceHotplug(ctx, name)
		if b.plugged = err == nil || snaprpc.IsExists(err); b.plugged {
			return nil
		}
		return explain(err, gone, "plug in device %s", name)
	}
}

// make makes the device and gives it its function, or leaves nothing but
// perhaps a function, which is free for the next one.
func (b *fsBuild) make(s sharing) func(context.Context) error {
	return func(ctx context.Context) error {
		unlock, err := b.d.lockFunctions(ctx)
		if err != nil {
			return err
		}
		defer unlock()
		return b.makeOn(ctx, s)
	}
}

func (b *fsBuild) makeOn(ctx context.Context, s sharing) error {
	name := devicePart + b.spec.Device
	f, found := b.function(s)
	b.d.given.set(b.spec.Device, "")
	err := b.d.rpc.VirtioFSDeviceCreate(ctx, snaprpc.FSDeviceSpec{
		Transport: transport, Name: name, Tag: b.spec.Device + tagPart, FSDev: b.spec.Device,
		Queues: b.queues, QueueSize: queueSize, Platform: driverPlatform,
	})
	if err != nil {
		// ENODEV is the fsdev: the transport was there a moment ago. One
		// that is shown is shown by somebody who is not in the list.
		return explain(err, map[int]error{snaprpc.CodeBusy: provisioner.ErrInUse}, "create device %s", name)
	}
	if found {
		err = b.d.rpc.VirtioFSDeviceModify(ctx, name, f.Manager, f.VUID)
	}
	if !found || snaprpc.IsBusy(err) { // the function is another device's by now
		if f, err = b.d.newFSFunction(ctx); err == nil {
			err = b.d.rpc.VirtioFSDeviceModify(ctx, name, f.Manager, f.VUID)
		}
	}
	if err != nil {
		_ = b.d.rpc.VirtioFSDeviceDestroy(ctx, name) // if it stays, it is removed first the next time
		return explain(err, gone, "give device %s function %s", name, f.VUID)
	}
	b.d.given.set(b.spec.Device, f.VUID)
	return nil
}

// newFSFunction makes a function, after it has made room if there is none.
func (d *DPU) newFSFunction(ctx context.Context) (snaprpc.FSFunction, error) {
	managers, err := d.rpc.VirtioFSManagers(ctx)
	if err != nil || len(managers) == 0 {
		return snaprpc.FSFunction{}, cmp.Or(err, fmt.Errorf("virtio-fs has no manager: %w", provisioner.ErrUnavailable))
	}
	f := snaprpc.FSFunction{Manager: managers[0].Name}
	f.VUID, err = d.rpc.VirtioFSFunctionCreate(ctx, f.Manager)
	if code, refused := snaprpc.Code(err); refused && (code == snaprpc.CodeNoSpace || code == snaprpc.CodeNoMemory) {
		if d.tidy(ctx) > 0 {
			f.VUID, err = d.rpc.VirtioFSFunctionCreate(ctx, f.Manager)
		}
	}
	if err != nil {
		return f, fmt.Errorf("make a virtio-fs function (a DPU has room for %d hot-plugged ones: detach a volume from this host): %w", d.hotplugLimit, err)
	}
	return f, nil
}
