package nvme

import (
	"context"
	"fmt"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
)

// Withdraw takes the device away from the host, and removes what showed it.
func (d *Emulation) Withdraw(ctx context.Context, device string) error {
	return d.tearDown(ctx, device, everywhere)
}

// Where tearDown looks for the device.
var (
	everywhere = func(snaprpc.Subsystem) bool { return true }
	madeHere   = func(s snaprpc.Subsystem) bool { return Own(s.NQN) }
)

func (d *Emulation) tearDown(ctx context.Context, device string, where func(snaprpc.Subsystem) bool) error {
	asked := map[string]bool{}
	return service.Drive(ctx, func(ctx context.Context) (*service.Step, error) {
		subsystems, err := d.subsystems(ctx)
		if err != nil {
			return nil, err
		}
		var within []snaprpc.Subsystem
		for _, s := range subsystems {
			if where(s) {
				within = append(within, s)
			}
		}
		return d.nextDown(ctx, find(within, device), asked)
	})
}

// nextDown says what is left of an exposure, in the order of removal; nil if
// nothing is. The detachment, which is the fence, comes before anything else is
// asked.
func (d *Emulation) nextDown(ctx context.Context, p listing, asked map[string]bool) (*service.Step, error) {
	switch {
	case p.subsystem == nil:
		return nil, nil
	case p.attached():
		return d.detach(p.namespace.Controllers[0].CtrlID, p.namespace.NSID), nil
	case p.own() && len(p.subsystem.Controllers) > 0:
		return d.nextController(ctx, p, asked)
	case p.namespace != nil:
		return d.destroyNamespace(p.subsystem.NQN, p.namespace.NSID), nil
	case p.own():
		return d.destroySubsystem(p.subsystem.NQN), nil
	}
	return nil, nil
}

// nextController says how the first controller there goes. On a hot-plugged
// function the namespace goes before it, since the host has a say in the rest.
func (d *Emulation) nextController(ctx context.Context, p listing, asked map[string]bool) (*service.Step, error) {
	functions, err := d.functions(ctx)
	if err != nil {
		return nil, err
	}
	c := p.subsystem.Controllers[0]
	f, found := functionWith(functions, c.CtrlID)
	switch {
	case !found || !f.Hotplugged:
		return d.destroyController(c.CtrlID), nil
	case p.namespace != nil:
		return d.destroyNamespace(p.subsystem.NQN, p.namespace.NSID), nil
	}
	return d.nextOut(ctx, c, f, asked)
}

func (d *Emulation) detach(ctrlID string, nsid int64) *service.Step {
	name := fmt.Sprintf("detach namespace %d from controller %s", nsid, ctrlID)
	return service.NewStep(name, func(ctx context.Context) error {
		return service.Explain(d.RPC.NvmeControllerDetachNS(ctx, ctrlID, nsid), service.Absent, "%s", name)
	})
}

func (d *Emulation) destroyController(ctrlID string) *service.Step {
	name := "destroy controller " + ctrlID
	return service.NewStep(name, func(ctx context.Context) error {
		return service.Explain(d.RPC.NvmeControllerDestroy(ctx, ctrlID, true), service.Absent, "%s", name)
	})
}

func (d *Emulation) destroyNamespace(nqn string, nsid int64) *service.Step {
	name := fmt.Sprintf("destroy namespace %d of subsystem %s", nsid, nqn)
	return service.NewStep(name, func(ctx context.Context) error {
		return service.Explain(d.RPC.NvmeNamespaceDestroy(ctx, nqn, nsid), service.Absent, "%s", name)
	})
}

// destroySubsystem uses no force: what is in there then is not ours to remove.
func (d *Emulation) destroySubsystem(nqn string) *service.Step {
	name := "destroy subsystem " + nqn
	return service.NewStep(name, func(ctx context.Context) error {
		return service.Explain(d.RPC.NvmeSubsystemDestroy(ctx, nqn, false), service.Absent, "%s", name)
	})
}

// nextOut removes what remains of a withdrawn device with a hot-plugged
// function. The host is asked once to let go of it, and not waited for: what is
// left then is listed, and removed by a later call. Nil if nothing can be done.
func (d *Emulation) nextOut(ctx context.Context, c snaprpc.Controller, f snaprpc.Function, asked map[string]bool) (*service.Step, error) {
	family, err := d.plugging(ctx)
	if err != nil {
		return nil, err
	}
	out := pending(f) && (asked[f.VUID] || !c.Plugged)
	switch {
	case !out && asked[f.VUID]:
		return nil, nil
	case !out:
		name := "unplug function " + f.VUID
		return service.NewStep(name, func(ctx context.Context) error {
			err := family.unplug(ctx, c.CtrlID, f.VUID)
			asked[f.VUID] = err == nil
			return service.Explain(err, service.Absent, "%s", name)
		}), nil
	}
	name := fmt.Sprintf("destroy controller %s and function %s", c.CtrlID, f.VUID)
	return service.NewStep(name, func(ctx context.Context) error {
		if err := d.RPC.NvmeControllerDestroy(ctx, c.CtrlID, true); err != nil {
			return service.Explain(err, service.Absent, "%s", name)
		}
		return service.Explain(family.remove(ctx, f.VUID), service.Absent, "%s", name)
	}), nil
}

// A service that ends leaves its functions with the host, and what the host has asked of them
// waits there. The next controller on such a function serves that once it is resumed,
// whatever device it shows. SNAP does not tell whether there is anything, so a function that is
// taken for a device is first rid of it: by a controller that never serves and is destroyed.

// Discard ends what the function at an address has kept of a device. One that carries a
// controller by now has lost it, or is that of another device, which has seen to it.
func (d *Emulation) Discard(ctx context.Context, device, address string) error {
	unlock, err := d.LockFunctions(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	functions, err := d.functions(ctx)
	if err != nil {
		return err
	}
	f, found := functionAt(functions, address)
	if !found || f.CtrlID != "" {
		return nil
	}
	nqn := NQN(device)
	if f.Hotplugged {
		// It can be unplugged by its controller alone. Until the host has let go of it,
		// that is what a withdrawal leaves, and no exposure begins before it has gone.
		err = d.toUnplug(ctx, nqn, f.VUID)
	} else if err = d.subsystem(ctx, nqn); err == nil {
		err = d.discardAt(ctx, nqn, f.PCIBDF)
	}
	if err != nil {
		return err
	}
	return d.tearDown(ctx, nqn, madeHere)
}

// discardAt makes a controller that serves nothing on a static function, and
// destroys it. The right to choose a function is held, and the subsystem is there.
func (d *Emulation) discardAt(ctx context.Context, nqn, bdf string) error {
	ctrlID, err := d.RPC.NvmeControllerCreate(ctx, snaprpc.ControllerSpec{NQN: nqn, PCIBDF: bdf, Suspended: true})
	if err == nil {
		err = d.RPC.NvmeControllerDestroy(ctx, ctrlID, true)
	}
	return service.Explain(err, service.Vanished, "discard what the function at %s has kept", bdf)
}

// subsystem makes a subsystem that may be there already.
func (d *Emulation) subsystem(ctx context.Context, nqn string) error {
	if err := d.RPC.NvmeSubsystemCreate(ctx, nqn); err != nil && !snaprpc.IsExists(err) {
		return service.Explain(err, nil, "create subsystem %s", nqn)
	}
	return nil
}

// toUnplug gives a hot-plugged function that the host has a controller, which serves nothing.
func (d *Emulation) toUnplug(ctx context.Context, nqn, vuid string) error {
	if err := d.subsystem(ctx, nqn); err != nil {
		return err
	}
	_, err := d.RPC.NvmeControllerCreate(ctx, snaprpc.ControllerSpec{NQN: nqn, VUID: vuid, Suspended: true})
	return service.Explain(err, service.Vanished, "create a controller on function %s to unplug it", vuid)
}
