package virtiofs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
)

// What devices are made with: DPF's values.
const (
	defaultQueues  = 8
	queueSize      = 256
	driverPlatform = "x86_64"
)

// maxTries is how often a device is made within one call.
const maxTries = 3

// build is a virtio-fs exposure being made.
type build struct {
	d      *Emulation
	spec   provisioner.ExposeSpec
	queues int64
	// tries counts how often the device was to be made.
	tries int
	// plugged and unplugged are true once the host was asked.
	plugged, unplugged bool
}

// Expose shows an fsdev to the host, see Expose. A hidden one has its device
// running on a function that is not plugged in.
func (d *Emulation) Expose(ctx context.Context, spec provisioner.ExposeSpec) (provisioner.Exposure, error) {
	if err := check(spec); err != nil {
		return provisioner.Exposure{}, err
	}
	queues, err := strconv.ParseInt(cmp.Or(spec.Parameters[storagev1alpha1.ParameterRequestQueues], strconv.Itoa(defaultQueues)), 10, 32)
	if err != nil || queues < 1 {
		return provisioner.Exposure{}, fmt.Errorf("parameter %s is %q: a number from 1 on is wanted: %w", storagev1alpha1.ParameterRequestQueues, spec.Parameters[storagev1alpha1.ParameterRequestQueues], provisioner.ErrInvalid)
	}
	b := &build{d: d, spec: spec, queues: queues}
	err = service.Drive(ctx, d.nextService)
	if err == nil {
		err = service.Drive(ctx, b.next)
	}
	if err != nil {
		return provisioner.Exposure{}, b.undo(ctx, err)
	}
	var e provisioner.Exposure
	err = d.Patiently(ctx, func() (err error) {
		if e, err = b.observe(ctx); err == nil && (e.Hidden != spec.Hidden || e.Visible == spec.Hidden) {
			err = fmt.Errorf("the host has not acted on its function yet: %w", service.ErrNotYet)
		}
		return err
	})
	return e, err
}

// undo removes what was made before a final error, as build.undo does.
func (b *build) undo(ctx context.Context, cause error) error {
	if provisioner.Uncertain(cause) {
		return cause
	}
	if err := b.d.tearDown(ctx, b.spec.Device, madeHere); err != nil {
		return fmt.Errorf("%w; and what was made so far could not be removed, repeat: %w: %w", cause, provisioner.ErrUnavailable, err)
	}
	return cause
}

func (b *build) observe(ctx context.Context) (provisioner.Exposure, error) {
	s, err := b.d.sharing(ctx)
	if err != nil {
		return provisioner.Exposure{}, err
	}
	v := s.device(b.spec.Device)
	if v == nil {
		return provisioner.Exposure{}, fmt.Errorf("the device has vanished: %w", provisioner.ErrUnavailable)
	}
	f, known := b.function(s)
	return exposure(v, f, known), nil
}

func (b *build) function(s sharing) (snaprpc.FSFunction, bool) {
	return b.d.functionFor(s, b.spec.Device, b.spec.VUID, b.spec.PCIAddress)
}

// nextService says what the service lacks to show any file system. It is left
// so when the last one goes: another may be on its way.
func (d *Emulation) nextService(ctx context.Context) (*service.Step, error) {
	transports, err := d.RPC.VirtioFSTransports(ctx)
	if err != nil {
		return nil, service.Explain(err, service.Unread, "list the virtio-fs transports (does this SNAP service offer virtio-fs?)")
	}
	at := slices.IndexFunc(transports, func(t snaprpc.FSTransport) bool { return t.Name == transport })
	if at < 0 {
		return service.NewStep("create the transport", func(ctx context.Context) error {
			return service.Explain(d.RPC.VirtioFSTransportCreate(ctx, transport), nil, "create transport %s", transport)
		}), nil
	}
	managers, err := d.RPC.VirtioFSManagers(ctx)
	if err != nil {
		return nil, service.Explain(err, service.Unread, "list the managers of virtio-fs")
	}
	switch {
	case len(managers) == 0:
		return service.NewStep("create the manager", d.createManager), nil
	case transports[at].State != snaprpc.TransportStarted:
		return service.NewStep("start the transport", func(ctx context.Context) error {
			return service.Explain(d.RPC.VirtioFSTransportStart(ctx, transport), nil, "start transport %s", transport)
		}), nil
	}
	return nil, nil
}

func (d *Emulation) createManager(ctx context.Context) error {
	possible, err := d.RPC.VirtioFSPossibleManagers(ctx)
	if err != nil {
		return service.Explain(err, service.Unread, "list the possible managers of virtio-fs")
	}
	if len(possible) == 0 {
		return fmt.Errorf("no device of this DPU can manage virtio-fs functions: is virtio-fs emulation on in its firmware? %w", provisioner.ErrUnsupported)
	}
	return service.Explain(d.RPC.VirtioFSManagerCreate(ctx, possible[0].Name), nil, "create manager %s", possible[0].Name)
}

// next says what is missing of the exposure. The order is DPF's. A device whose
// function is not known, which is one that a crash left or that others
// made, is made anew: the host can use only what was recorded.
func (b *build) next(ctx context.Context) (*service.Step, error) {
	s, err := b.d.sharing(ctx)
	if err != nil {
		return nil, err
	}
	v := s.device(b.spec.Device)
	if v == nil {
		if b.tries++; b.tries > maxTries {
			return nil, fmt.Errorf("the device does not stay: %w", provisioner.ErrUnavailable)
		}
		return service.NewStep("make the device", b.make(s)), nil
	}
	if !madeHere(v) {
		return nil, fmt.Errorf("device %s, which is not ours, shows it: remove that device: %w", v.Name, provisioner.ErrPrecondition)
	}
	f, known := b.function(s)
	switch {
	case !running(v) && b.d.given.get(b.spec.Device) == "", !known:
		return service.NewStep("remove a device of which the function is not known", func(ctx context.Context) error {
			return b.d.tearDown(ctx, b.spec.Device, madeHere)
		}), nil
	case !running(v):
		return service.NewStep("start the device", func(ctx context.Context) error {
			return service.Explain(b.d.RPC.VirtioFSDeviceStart(ctx, v.Name), startRefused, "start device %s", v.Name)
		}), nil
	case !b.spec.Hidden && pending(f) && !b.plugged:
		return service.NewStep("plug in the device", b.plug(v.Name)), nil
	case b.spec.Hidden && !pending(f) && !b.unplugged:
		return service.NewStep("unplug the device", func(ctx context.Context) error {
			b.unplugged = true
			return service.Explain(b.d.RPC.VirtioFSDeviceHotunplug(ctx, v.Name), nil, "unplug device %s", v.Name)
		}), nil
	}
	return nil, nil
}

// startRefused: what a device needs was there a moment ago.
var startRefused = map[int]error{
	snaprpc.CodeInvalid:  provisioner.ErrUnavailable,
	snaprpc.CodeNoDevice: provisioner.ErrUnavailable,
}

// plug begins to plug in the device; one that is on its way is as good.
func (b *build) plug(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		err := b.d.RPC.VirtioFSDeviceHotplug(ctx, name)
		if b.plugged = err == nil || snaprpc.IsExists(err); b.plugged {
			return nil
		}
		return service.Explain(err, service.Vanished, "plug in device %s", name)
	}
}

// make makes the device and gives it its function, or leaves nothing but
// perhaps a function, which is free for the next one.
func (b *build) make(s sharing) func(context.Context) error {
	return func(ctx context.Context) error {
		unlock, err := b.d.LockFunctions(ctx)
		if err != nil {
			return err
		}
		defer unlock()
		return b.makeOn(ctx, s)
	}
}

func (b *build) makeOn(ctx context.Context, s sharing) error {
	name := devicePart + b.spec.Device
	f, found := b.function(s)
	b.d.given.set(b.spec.Device, "")
	err := b.d.RPC.VirtioFSDeviceCreate(ctx, snaprpc.FSDeviceSpec{
		Transport: transport, Name: name, Tag: b.spec.Device + tagPart, FSDev: b.spec.Device,
		Queues: b.queues, QueueSize: queueSize, Platform: driverPlatform,
	})
	if err != nil {
		// ENODEV is the fsdev: the transport was there a moment ago. One
		// that is shown is shown by something that is not in the list.
		return service.Explain(err, map[int]error{snaprpc.CodeBusy: provisioner.ErrInUse}, "create device %s", name)
	}
	if found {
		err = b.d.RPC.VirtioFSDeviceModify(ctx, name, f.Manager, f.VUID)
	}
	if !found || snaprpc.IsBusy(err) { // the function is another device's by now
		if f, err = b.d.newFunction(ctx); err == nil {
			err = b.d.RPC.VirtioFSDeviceModify(ctx, name, f.Manager, f.VUID)
		}
	}
	if err != nil {
		_ = b.d.RPC.VirtioFSDeviceDestroy(ctx, name) // if it stays, it is removed first the next time
		return service.Explain(err, service.Vanished, "give device %s function %s", name, f.VUID)
	}
	b.d.given.set(b.spec.Device, f.VUID)
	return nil
}

// newFunction makes a function, after it has made room if there is none.
func (d *Emulation) newFunction(ctx context.Context) (snaprpc.FSFunction, error) {
	managers, err := d.RPC.VirtioFSManagers(ctx)
	if err != nil || len(managers) == 0 {
		return snaprpc.FSFunction{}, cmp.Or(err, fmt.Errorf("virtio-fs has no manager: %w", provisioner.ErrUnavailable))
	}
	f := snaprpc.FSFunction{Manager: managers[0].Name}
	f.VUID, err = d.RPC.VirtioFSFunctionCreate(ctx, f.Manager)
	if code, refused := snaprpc.Code(err); refused && (code == snaprpc.CodeNoSpace || code == snaprpc.CodeNoMemory) {
		if d.MakeRoom(ctx) > 0 {
			f.VUID, err = d.RPC.VirtioFSFunctionCreate(ctx, f.Manager)
		}
	}
	if err != nil {
		return f, fmt.Errorf("make a virtio-fs function (a DPU has room for %d hot-plugged ones: detach a volume from this host): %w", d.HotplugLimit, err)
	}
	return f, nil
}
