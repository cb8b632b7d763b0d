package nvme

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
)

// build is one exposure being made.
type build struct {
	d          *Emulation
	spec       provisioner.ExposeSpec
	nqn, uuid  string
	nsid       int64
	parameters map[string]any
}

func (b *build) createNamespace(ctx context.Context) error {
	err := b.d.RPC.NvmeNamespaceCreate(ctx, snaprpc.NamespaceSpec{NQN: b.nqn, NSID: b.nsid, UUID: b.uuid, BdevName: b.spec.Device})
	// ENOENT is the subsystem, gone since it was listed; ENODEV the device.
	// A device that is claimed is held by something that is not in the list.
	special := map[int]error{snaprpc.CodeNotFound: provisioner.ErrUnavailable, snaprpc.CodeBusy: provisioner.ErrInUse}
	return service.Explain(err, special, "create namespace %d in subsystem %s", b.nsid, b.nqn)
}

func (b *build) createSubsystem(ctx context.Context) error {
	return service.Explain(b.d.RPC.NvmeSubsystemCreate(ctx, b.nqn), nil, "create subsystem %s", b.nqn)
}

func (b *build) createController(ctx context.Context) error {
	unlock, err := b.d.LockFunctions(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	functions, err := b.d.functions(ctx)
	if err != nil {
		return err
	}
	f, err := choose(functions, b.wanted(), b.d.Reserved(ctx))
	if err != nil {
		return fmt.Errorf("choose a function: %w", err)
	}
	if b.spec.Recover == nil {
		if err := b.d.discardAt(ctx, b.nqn, f.PCIBDF); err != nil {
			return err
		}
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
	_, err := b.d.RPC.NvmeControllerCreate(ctx, spec)
	if code, refused := snaprpc.Code(err); refused && code == snaprpc.CodeInvalidParams && len(b.parameters) > 0 {
		return service.Explain(err, nil, "create the controller at %s: the service refuses the parameters (%s); take those that it does not know out of the StorageClass",
			where, names(b.spec.Parameters))
	}
	return service.Explain(err, service.Vanished, "create the controller at %s", where)
}

// createPlugged makes the controller on a hot-plugged function that is free, or
// on a new one. A crash between the two leaves a free one, for the next volume
// or for the sweep.
func (b *build) createPlugged(ctx context.Context) error {
	unlock, err := b.d.LockFunctions(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	family, err := b.d.plugging(ctx)
	if err != nil {
		return err
	}
	functions, err := b.d.functions(ctx)
	if err != nil {
		return err
	}
	f, found := chooseSpare(functions, b.wanted(), family.plug != nil, b.spec.Recover != nil)
	if !found {
		if f.VUID, err = b.d.newFunction(ctx, family); err != nil {
			return err
		}
	}
	err = b.controllerOn(ctx, snaprpc.ControllerSpec{VUID: f.VUID})
	if err != nil && !found && !provisioner.Uncertain(err) && family.plug != nil {
		// If it cannot be removed, it is free for the next volume.
		_ = family.remove(ctx, f.VUID)
	}
	return err
}

func (b *build) attach(p listing) func(context.Context) error {
	return func(ctx context.Context) error {
		err := b.d.RPC.NvmeControllerAttachNS(ctx, p.controller.CtrlID, p.namespace.NSID)
		return service.Explain(err, service.Vanished, "attach namespace %d to controller %s", p.namespace.NSID, p.controller.CtrlID)
	}
}

// resume lets the controller serve. What its function has kept is served first, so that is
// asked for last of all.
func (b *build) resume(p listing) func(context.Context) error {
	return func(ctx context.Context) error {
		if b.spec.Recover != nil {
			if err := b.spec.Recover(ctx); err != nil {
				return fmt.Errorf("controller %s is not resumed: %w", p.controller.CtrlID, err)
			}
		}
		return service.Explain(b.d.RPC.NvmeControllerResume(ctx, p.controller.CtrlID), service.Vanished, "resume controller %s", p.controller.CtrlID)
	}
}

// plug begins to plug in the function of the exposure's controller.
func (b *build) plug(p listing) func(context.Context) error {
	return func(ctx context.Context) error {
		family, err := b.d.plugging(ctx)
		if err != nil || family.plug == nil {
			return err
		}
		return service.Explain(family.plug(ctx, p.controller.CtrlID), service.Vanished, "plug in the function of controller %s", p.controller.CtrlID)
	}
}

// needsPlug reports whether the function of the exposure is still to be plugged
// in. One that is on its way shows no address either.
func (b *build) needsPlug(ctx context.Context, p listing) (bool, error) {
	if !b.spec.Hotplug || p.controller == nil || p.controller.Plugged {
		return false, nil
	}
	functions, err := b.d.functions(ctx)
	if err != nil {
		return false, err
	}
	f, ok := functionWith(functions, p.controller.CtrlID)
	if !ok || !f.Hotplugged || !pending(f) {
		return false, nil
	}
	family, err := b.d.plugging(ctx)
	return family.plug != nil, err
}

// chosenHere are the parameters of nvme_controller_create that name the
// function, the subsystem and the state: a StorageClass may not set them.
var chosenHere = []string{"nqn", "pci_bdf", "vuid", "pf_id", "vf_id", "ctrl", "ctrl_id", "suspended", "admin_only"}

// convert turns the text of a StorageClass into what SNAP expects: booleans
// and integers as such, the rest as text. ErrInvalid for one of chosenHere.
func convert(parameters map[string]string) (map[string]any, error) {
	out := make(map[string]any, len(parameters))
	for key, text := range parameters {
		if slices.Contains(chosenHere, key) {
			return nil, fmt.Errorf("parameter %q cannot be set, it is chosen for each volume: %w", key, provisioner.ErrInvalid)
		}
		out[key] = convertOne(text)
	}
	return out, nil
}

func convertOne(text string) any {
	switch text {
	case "true", "True":
		return true
	case "false", "False":
		return false
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	return text
}

func names(parameters map[string]string) string {
	return strings.Join(slices.Sorted(maps.Keys(parameters)), ", ")
}
