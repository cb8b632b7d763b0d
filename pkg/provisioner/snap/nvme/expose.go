package nvme

import (
	"context"
	"fmt"
	"strings"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
)

// firstNSID is the namespace id in a subsystem which holds one volume only.
const firstNSID = 1

// Expose shows the device to the host, see snap.DPU.
func (d *Emulation) Expose(ctx context.Context, spec provisioner.ExposeSpec) (provisioner.Exposure, error) {
	b, err := d.newBuild(spec)
	if err != nil {
		return provisioner.Exposure{}, err
	}
	return b.run(ctx)
}

func (d *Emulation) newBuild(spec provisioner.ExposeSpec) (*build, error) {
	switch {
	case spec.FunctionType != provisioner.PF && spec.FunctionType != provisioner.VF:
		return nil, fmt.Errorf("function type %q is neither pf nor vf: %w", spec.FunctionType, provisioner.ErrInvalid)
	case spec.Hotplug && spec.FunctionType == provisioner.VF:
		return nil, fmt.Errorf("a virtual function cannot be hot-plugged: %w", provisioner.ErrInvalid)
	case Own(spec.Device) || strings.HasPrefix(spec.Device, SparePrefix):
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
	if err := service.Drive(ctx, b.next); err != nil {
		return provisioner.Exposure{}, b.undo(ctx, err)
	}
	var e provisioner.Exposure
	err := b.d.Patiently(ctx, func() (err error) {
		if e, err = b.observe(ctx); err == nil && e.PCIAddress == "" {
			err = fmt.Errorf("the host has not enumerated the function yet: %w", service.ErrNotYet)
		}
		return err
	})
	return e, err
}

// observe returns the exposure as the service lists it.
func (b *build) observe(ctx context.Context) (provisioner.Exposure, error) {
	p, err := b.listed(ctx)
	if err != nil {
		return provisioner.Exposure{}, err
	}
	functions, err := b.d.functions(ctx)
	if err != nil {
		return provisioner.Exposure{}, err
	}
	return p.exposure(b.spec.Device, functions), nil
}

func (b *build) listed(ctx context.Context) (listing, error) {
	subsystems, err := b.d.subsystems(ctx)
	return find(subsystems, b.spec.Device), err
}

// clear removes what an earlier call left half-made with another identity than
// the recorded one. What the host can reach is not removed: ErrExists.
func (b *build) clear(ctx context.Context) error {
	if b.spec.PCIAddress == "" && b.spec.NamespaceID == 0 && b.spec.UUID == "" {
		return nil
	}
	e, err := b.observe(ctx)
	if err != nil || b.matches(e) {
		return err
	}
	if e.Visible {
		return fmt.Errorf("it is shown at PCI address %s as namespace %d with UUID %s, recorded are %s, %d, %s: withdraw it first: %w",
			e.PCIAddress, e.NamespaceID, e.UUID, b.spec.PCIAddress, b.spec.NamespaceID, b.spec.UUID, provisioner.ErrExists)
	}
	return b.d.tearDown(ctx, b.spec.Device, madeHere)
}

// matches reports whether nothing in e contradicts the recorded identity, of
// which the address of a hot-plugged function is no part: after a power cycle
// the host numbers them anew.
func (b *build) matches(e provisioner.Exposure) bool {
	return (b.spec.Hotplug || agree(service.Bare(e.PCIAddress), service.Bare(b.spec.PCIAddress))) && agree(e.UUID, b.spec.UUID) && agree(e.NamespaceID, b.spec.NamespaceID)
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
	if err := b.d.tearDown(ctx, b.spec.Device, madeHere); err != nil {
		return fmt.Errorf("%w; and what was made so far could not be removed, repeat: %w: %w", cause, provisioner.ErrUnavailable, err)
	}
	return cause
}

// next says what is missing of the exposure. The order is DPF's.
func (b *build) next(ctx context.Context) (*service.Step, error) {
	p, err := b.listed(ctx)
	switch {
	case err != nil:
		return nil, err
	case p.foreign() && (b.spec.Hidden || !p.serving()):
		return nil, fmt.Errorf("namespace %d of subsystem %s, which is not ours, holds the device: remove that namespace: %w",
			p.namespace.NSID, p.subsystem.NQN, provisioner.ErrPrecondition)
	case b.spec.Hidden && p.attached():
		return b.d.detach(p.namespace.Controllers[0].CtrlID, p.namespace.NSID), nil
	case p.subsystem == nil:
		return service.NewStep("create the subsystem", b.createSubsystem), nil
	case p.namespace == nil:
		return service.NewStep("create the namespace", b.createNamespace), nil
	case p.controller == nil:
		return service.NewStep("create the controller", b.makeController), nil
	case !b.spec.Hidden && !p.attached():
		return service.NewStep("attach the namespace", b.attach(p)), nil
	case !p.started():
		return service.NewStep("resume the controller", b.resume(p)), nil
	}
	if out, err := b.needsPlug(ctx, p); err != nil || !out {
		return nil, err
	}
	return service.NewStep("plug in the function", b.plug(p)), nil
}

// makeController creates the controller on a function to plug in, or on one that is there.
func (b *build) makeController(ctx context.Context) error {
	if b.spec.Hotplug {
		return b.createPlugged(ctx)
	}
	return b.createController(ctx)
}

// clearLeftover ends a withdrawal of the same device that waits for the host:
// its function is on the way out and can not be used. It removes, too, a controller
// that was made and has not served yet, unless what its function has kept is to be
// recovered: that may be of an epoch that is over.
func (b *build) clearLeftover(ctx context.Context) error {
	return b.d.Patiently(ctx, func() error {
		p, err := b.listed(ctx)
		if err != nil || !p.leftover() && (b.spec.Recover != nil || !p.suspended()) {
			return err
		}
		if err := b.d.tearDown(ctx, b.spec.Device, madeHere); err != nil {
			return err
		}
		if p, err = b.listed(ctx); err != nil || !p.leftover() {
			return err
		}
		return fmt.Errorf("the host has not let go of the function that the device had before: %w", service.ErrNotYet)
	})
}
