package snap

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Withdraw takes the device away from the host and removes what showed it: the
// namespace is detached first, which ends the host's I/O. It returns nil only
// when the service lists none of it any more. What List calls a device, an NQN or
// a function, is taken in place of one. A static function stays, free for the
// next volume. A hot-plugged one is unplugged and removed, but not waited for:
// while the host does not let go of it, its port remains taken by a subsystem
// without a namespace, which List tells of. A file system is another matter:
// only a device that was stopped is known to serve no more, and it cannot be
// stopped while the host has it, so a host that does not let go makes Withdraw
// fail with ErrUnavailable.
func (d *DPU) Withdraw(ctx context.Context, device string) error {
	err := d.alone(device, func() error {
		switch {
		case strings.HasPrefix(device, sparePrefix):
			return d.removeSpare(ctx, device)
		case strings.HasPrefix(device, spareFSPrefix):
			return d.removeSpareFS(ctx, device)
		}
		// Both are tried: neither may hold up the fence of the other.
		return errors.Join(d.tearDown(ctx, device, everywhere), d.tearDownFS(ctx, device, anyFS))
	})
	if err != nil {
		return fmt.Errorf("withdraw device %s: %w", device, err)
	}
	return nil
}

// Where tearDown looks for the device.
var (
	everywhere = func(snaprpc.Subsystem) bool { return true }
	oursOnly   = func(s snaprpc.Subsystem) bool { return Own(s.NQN) }
)

func (d *DPU) tearDown(ctx context.Context, device string, where func(snaprpc.Subsystem) bool) error {
	asked := map[string]bool{}
	return drive(ctx, func(ctx context.Context) (*step, error) {
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
		return d.nextDown(ctx, locate(within, device), asked)
	})
}

// nextDown says what is left of an exposure, in the order of removal; nil if
// nothing is. The detachment, which is the fence, comes before anything else is
// asked.
func (d *DPU) nextDown(ctx context.Context, p place, asked map[string]bool) (*step, error) {
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
func (d *DPU) nextController(ctx context.Context, p place, asked map[string]bool) (*step, error) {
	functions, err := d.functions(ctx)
	if err != nil {
		return nil, err
	}
	c := p.subsystem.Controllers[0]
	f, found := functionOf(functions, c.CtrlID)
	switch {
	case !found || !f.Hotplugged:
		return d.destroyController(c.CtrlID), nil
	case p.namespace != nil:
		return d.destroyNamespace(p.subsystem.NQN, p.namespace.NSID), nil
	}
	return d.nextOut(ctx, c, f, asked)
}

// absent: a thing that is gone already is no failure; the next look decides.
var absent = map[int]error{
	snaprpc.CodeNotFound: provisioner.ErrBusy,
	snaprpc.CodeNoDevice: provisioner.ErrBusy,
}

func (d *DPU) detach(ctrlID string, nsid int64) *step {
	name := fmt.Sprintf("detach namespace %d from controller %s", nsid, ctrlID)
	return &step{name, func(ctx context.Context) error {
		return explain(d.rpc.NvmeControllerDetachNS(ctx, ctrlID, nsid), absent, "%s", name)
	}}
}

func (d *DPU) destroyController(ctrlID string) *step {
	name := "destroy controller " + ctrlID
	return &step{name, func(ctx context.Context) error {
		return explain(d.rpc.NvmeControllerDestroy(ctx, ctrlID, true), absent, "%s", name)
	}}
}

func (d *DPU) destroyNamespace(nqn string, nsid int64) *step {
	name := fmt.Sprintf("destroy namespace %d of subsystem %s", nsid, nqn)
	return &step{name, func(ctx context.Context) error {
		return explain(d.rpc.NvmeNamespaceDestroy(ctx, nqn, nsid), absent, "%s", name)
	}}
}

// destroySubsystem uses no force: what is in there then is not ours to remove.
func (d *DPU) destroySubsystem(nqn string) *step {
	name := "destroy subsystem " + nqn
	return &step{name, func(ctx context.Context) error {
		return explain(d.rpc.NvmeSubsystemDestroy(ctx, nqn, false), absent, "%s", name)
	}}
}
