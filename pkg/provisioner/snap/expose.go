package snap

import (
	"context"
	"fmt"
	"strings"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// firstNSID is the namespace id in a subsystem which holds one volume only.
const firstNSID = 1

// Expose shows the device to the host. It completes what an earlier call left
// half-made. A hidden exposure has all but the attachment of the namespace, and
// its controller runs: to show it takes one call that changes something, and so
// does to hide it again. With a recorded identity the host sees the same PCI address, NSID
// and UUID again, or an error says what is in the way: ErrInUse if another
// volume has the function, ErrExists if the device is shown with another
// identity. An error that is not uncertain leaves nothing behind.
func (d *DPU) Expose(ctx context.Context, spec provisioner.ExposeSpec) (provisioner.Exposure, error) {
	var out provisioner.Exposure
	err := d.alone(spec.Device, func() (err error) {
		if spec.Mode == provisioner.Filesystem {
			out, err = d.exposeFS(ctx, spec)
			return err
		}
		b, err := d.newBuild(spec)
		if err != nil {
			return err
		}
		out, err = b.run(ctx)
		return err
	})
	if err != nil {
		return provisioner.Exposure{}, fmt.Errorf("expose device %s: %w", spec.Device, err)
	}
	return out, nil
}

// build is one exposure being made.
type build struct {
	d          *DPU
	spec       provisioner.ExposeSpec
	nqn, uuid  string
	nsid       int64
	parameters map[string]any
}

func (d *DPU) newBuild(spec provisioner.ExposeSpec) (*build, error) {
	switch {
	case spec.FunctionType != provisioner.PF && spec.FunctionType != provisioner.VF:
		return nil, fmt.Errorf("function type %q is neither pf nor vf: %w", spec.FunctionType, provisioner.ErrInvalid)
	case spec.Hotplug && spec.FunctionType == provisioner.VF:
		return nil, fmt.Errorf("a virtual function cannot be hot-plugged: %w", provisioner.ErrInvalid)
	case Own(spec.Device) || strings.HasPrefix(spec.Device, sparePrefix):
		return nil, fmt.Errorf("%q is a subsystem or a function, not a device: %w", spec.Device, provisioner.ErrInvalid)
	}
	parameters, err := convert(spec.Parameters)
	if err != nil {
		return nil, err
	}
	b := &build{d: d, spec: spec, nqn: NQN(spec.Device), uuid: spec.UUID, nsid: spec.NamespaceID, parameters: parameters}
	if b.uuid == "" {
		b.uuid = d.newUUID()
	}
	if b.nsid == 0 {
		b.nsid = firstNSID
	}
	return b, nil
}

func (b *build) run(ctx context.Context) (provisioner.Exposure, error) {
	if err := b.clearLeftover(ctx); err != nil {
		return provisioner.Exposure{}, err
	}
	if err := b.clear(ctx); err != nil {
		return provisioner.Exposure{}, err
	}
	if err := drive(ctx, b.next); err != nil {
		return provisioner.Exposure{}, b.undo(ctx, err)
	}
	var e provisioner.Exposure
	err := b.d.patiently(ctx, func() (err error) {
		if e, err = b.look(ctx); err == nil && e.PCIAddress == "" {
			err = fmt.Errorf("the host has not enumerated the function yet: %w", errNotYet)
		}
		return err
	})
	return e, err
}

// look returns the exposure as the service lists it.
func (b *build) look(ctx context.Context) (provisioner.Exposure, error) {
	p, err := b.place(ctx)
	if err != nil {
		return provisioner.Exposure{}, err
	}
	functions, err := b.d.functions(ctx)
	if err != nil {
		return provisioner.Exposure{}, err
	}
	return p.exposure(b.spec.Device, functions), nil
}

func (b *build) place(ctx context.Context) (place, error) {
	subsystems, err := b.d.subsystems(ctx)
	return locate(subsystems, b.spec.Device), err
}

// clear removes what an earlier call left half-made with another identity than
// the recorded one. What the host can reach is not removed: ErrExists.
func (b *build) clear(ctx context.Context) error {
	if b.spec.PCIAddress == "" && b.spec.NamespaceID == 0 && b.spec.UUID == "" {
		return nil
	}
	e, err := b.look(ctx)
	if err != nil || b.matches(e) {
		return err
	}
	if e.Visible {
		return fmt.Errorf("it is shown at PCI address %s as namespace %d with UUID %s, recorded are %s, %d, %s: withdraw it first: %w",
			e.PCIAddress, e.NamespaceID, e.UUID, b.spec.PCIAddress, b.spec.NamespaceID, b.spec.UUID, provisioner.ErrExists)
	}
	return b.d.tearDown(ctx, b.spec.Device, oursOnly)
}

// matches reports whether nothing in e contradicts the recorded identity, of
// which the address of a hot-plugged function is no part: after a power cycle
// the host numbers them anew.
func (b *build) matches(e provisioner.Exposure) bool {
	return (b.spec.Hotplug || agree(bare(e.PCIAddress), bare(b.spec.PCIAddress))) && agree(e.UUID, b.spec.UUID) && agree(e.NamespaceID, b.spec.NamespaceID)
}

func agree[T comparable](have, recorded T) bool {
	var unknown T
	return have == unknown || recorded == unknown || have == recorded
}

// undo removes what was made before a final error. If that fails, the error is
// uncertain.
func (b *build) undo(ctx context.Context, cause error) error {
	if provisioner.Uncertain(cause) {
		return cause
	}
	if err := b.d.tearDown(ctx, b.spec.Device, oursOnly); err != nil {
		return fmt.Errorf("%w; and what was made so far could not be removed, repeat: %w: %w", cause, provisioner.ErrUnavailable, err)
	}
	return cause
}

// next says what is missing of the exposure. The order is DPF's.
func (b *build) next(ctx context.Context) (*step, error) {
	p, err := b.place(ctx)
	switch {
	case err != nil:
		return nil, err
	case p.foreign() && (b.spec.Hidden || !p.serving()):
		return nil, fmt.Errorf("namespace %d of subsystem %s, which is not ours, holds the device: remove that namespace: %w",
			p.namespace.NSID, p.subsystem.NQN, provisioner.ErrPrecondition)
	case b.spec.Hidden && p.attached():
		return b.d.detach(p.namespace.Controllers[0].CtrlID, p.namespace.NSID), nil
	case p.subsystem == nil:
		return &step{"create the subsystem", b.createSubsystem}, nil
	case p.namespace == nil:
		return &step{"create the namespace", b.createNamespace}, nil
	case p.controller == nil && b.spec.Hotplug:
		return &step{"create the controller", b.createPlugged}, nil
	case p.controller == nil:
		return &step{"create the controller", b.createController}, nil
	case !b.spec.Hidden && !p.attached():
		return &step{"attach the namespace", b.attach(p)}, nil
	case !p.started():
		return &step{"resume the controller", b.resume(p)}, nil
	}
	if out, err := b.needsPlug(ctx, p); err != nil || !out {
		return nil, err
	}
	return &step{"plug in the function", b.plug(p)}, nil
}

func (b *build) createSubsystem(ctx context.Context) error {
	return explain(b.d.rpc.NvmeSubsystemCreate(ctx, b.nqn), nil, "create subsystem %s", b.nqn)
}

func (b *build) createNamespace(ctx context.Context) error {
	err := b.d.rpc.NvmeNamespaceCreate(ctx, snaprpc.NamespaceSpec{NQN: b.nqn, NSID: b.nsid, UUID: b.uuid, BdevName: b.spec.Device})
	// ENOENT is the subsystem, gone since it was listed; ENODEV the device.
	// A device that is claimed is held by somebody who is not in the list.
	special := map[int]error{snaprpc.CodeNotFound: provisioner.ErrUnavailable, snaprpc.CodeBusy: provisioner.ErrInUse}
	return explain(err, special, "create namespace %d in subsystem %s", b.nsid, b.nqn)
}

func (b *build) createController(ctx context.Context) error {
	unlock, err := b.d.lockFunctions(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	functions, err := b.d.functions(ctx)
	if err != nil {
		return err
	}
	f, err := choose(functions, b.wanted(), b.d.reserved(ctx))
	if err != nil {
		return fmt.Errorf("choose a function: %w", err)
	}
	return b.controllerOn(ctx, snaprpc.ControllerSpec{PCIBDF: f.PCIBDF})
}

func (b *build) wanted() wanted {
	return wanted{device: b.spec.Device, kind: b.spec.FunctionType, recorded: b.spec.PCIAddress}
}

// controllerOn makes the controller on the function that spec names.
func (b *build) controllerOn(ctx context.Context, spec snaprpc.ControllerSpec) error {
	where := spec.PCIBDF + spec.VUID
	spec.NQN, spec.Suspended, spec.Parameters = b.nqn, true, b.parameters
	_, err := b.d.rpc.NvmeControllerCreate(ctx, spec)
	if code, refused := snaprpc.Code(err); refused && code == snaprpc.CodeInvalidParams && len(b.parameters) > 0 {
		return explain(err, nil, "create the controller at %s: the service refuses the parameters (%s); take those that it does not know out of the StorageClass",
			where, names(b.spec.Parameters))
	}
	return explain(err, gone, "create the controller at %s", where)
}

// gone is for things that were listed a moment ago: they may come back.
var gone = map[int]error{
	snaprpc.CodeNotFound: provisioner.ErrUnavailable,
	snaprpc.CodeNoDevice: provisioner.ErrUnavailable,
}

func (b *build) attach(p place) func(context.Context) error {
	return func(ctx context.Context) error {
		err := b.d.rpc.NvmeControllerAttachNS(ctx, p.controller.CtrlID, p.namespace.NSID)
		return explain(err, gone, "attach namespace %d to controller %s", p.namespace.NSID, p.controller.CtrlID)
	}
}

func (b *build) resume(p place) func(context.Context) error {
	return func(ctx context.Context) error {
		return explain(b.d.rpc.NvmeControllerResume(ctx, p.controller.CtrlID), gone, "resume controller %s", p.controller.CtrlID)
	}
}
