package snap

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// started is the state of a controller that serves the host.
const started = "STARTED"

// place is where a device is in the service's listing. Fields are nil for
// what is not there.
type place struct {
	subsystem *snaprpc.Subsystem
	namespace *snaprpc.Namespace
	// controller shows the namespace, or is there to show it.
	controller *snaprpc.Controller
}

// locate finds a device: in its own subsystem, or else in whichever holds it.
func locate(subsystems []snaprpc.Subsystem, device string) place {
	var p place
	for i := range subsystems {
		if subsystems[i].NQN == NQN(device) {
			p.subsystem = &subsystems[i]
		}
	}
	if p.namespace = namespaceOf(p.subsystem, device); p.namespace == nil {
		for i := range subsystems {
			if ns := namespaceOf(&subsystems[i], device); ns != nil {
				p.subsystem, p.namespace = &subsystems[i], ns
				break
			}
		}
	}
	p.controller = p.findController()
	return p
}

// own reports whether the subsystem there was made here.
func (p place) own() bool { return p.subsystem != nil && Own(p.subsystem.NQN) }

// foreign reports whether the device is in a subsystem not made here.
func (p place) foreign() bool { return p.subsystem != nil && !Own(p.subsystem.NQN) }

func (p place) attached() bool { return p.namespace != nil && len(p.namespace.Controllers) > 0 }

// started reports whether the controller serves the host.
func (p place) started() bool {
	return p.controller != nil && strings.EqualFold(p.controller.State, started)
}

// serving reports whether the host can reach the namespace.
func (p place) serving() bool { return p.attached() && p.started() }

// hidden reports whether all is there but the attachment of the namespace.
func (p place) hidden() bool { return p.own() && p.namespace != nil && !p.attached() && p.started() }

func (p place) findController() *snaprpc.Controller {
	if p.subsystem == nil {
		return nil
	}
	for i := range p.subsystem.Controllers {
		c := &p.subsystem.Controllers[i]
		if p.attached() && c.CtrlID == p.namespace.Controllers[0].CtrlID {
			return c
		}
	}
	// A controller that shows nothing yet is known to be this device's only
	// where the subsystem is.
	if p.own() && !p.attached() && len(p.subsystem.Controllers) > 0 {
		return &p.subsystem.Controllers[0]
	}
	return nil
}

// namespaceOf returns the namespace of device in s. For a subsystem named
// instead of a device, that is any.
func namespaceOf(s *snaprpc.Subsystem, device string) *snaprpc.Namespace {
	if s == nil {
		return nil
	}
	for i := range s.Namespaces {
		if s.Namespaces[i].Bdev == device || s.NQN == device {
			return &s.Namespaces[i]
		}
	}
	return nil
}

// exposure describes what is at p. A function which the host has not
// enumerated has no address, and shows nothing.
func (p place) exposure(device string, functions []snaprpc.Function) provisioner.Exposure {
	e := provisioner.Exposure{Device: device}
	if p.namespace != nil {
		e.Device, e.NamespaceID, e.UUID = p.namespace.Bdev, p.namespace.NSID, p.namespace.UUID
	}
	if p.controller == nil {
		return e
	}
	f, found := functionOf(functions, p.controller.CtrlID)
	if found && f.PCIBDF != snaprpc.PendingBDF {
		e.PCIAddress = f.PCIBDF
	}
	e.Visible = e.PCIAddress != "" && p.serving()
	e.Hidden = e.PCIAddress != "" && p.hidden()
	return e
}

// List returns the exposures in the subsystems made here, ordered by device. A
// subsystem that holds no namespace yet is listed with its NQN as the device;
// Withdraw takes that too, as it does the name of a hot-plugged function that no
// device has. It costs four calls, however many volumes there are.
func (d *DPU) List(ctx context.Context) ([]provisioner.Exposure, error) {
	subsystems, err := d.subsystems(ctx)
	if err != nil {
		return nil, err
	}
	functions, err := d.functions(ctx)
	if err != nil {
		return nil, err
	}
	var out []provisioner.Exposure
	for _, s := range subsystems {
		if !Own(s.NQN) {
			continue
		}
		if len(s.Namespaces) == 0 {
			out = append(out, locate(subsystems, s.NQN).exposure(s.NQN, functions))
		}
		for _, ns := range s.Namespaces {
			out = append(out, locate(subsystems, ns.Bdev).exposure(ns.Bdev, functions))
		}
	}
	for _, f := range spares(functions, d.reserved(ctx)) {
		out = append(out, provisioner.Exposure{Device: sparePrefix + f.VUID})
	}
	shared, err := d.listFS(ctx)
	if err != nil {
		return nil, err
	}
	out = append(out, shared...)
	slices.SortFunc(out, func(a, b provisioner.Exposure) int { return cmp.Compare(a.Device, b.Device) })
	return out, nil
}

// Functions counts the static NVMe functions, of which those are free that carry
// no controller, and those that can be plugged in, if the service offers that.
func (d *DPU) Functions(ctx context.Context) ([]provisioner.FunctionCount, error) {
	functions, err := d.functions(ctx)
	if err != nil {
		return nil, err
	}
	var out []provisioner.FunctionCount
	for _, kind := range []provisioner.FunctionType{provisioner.PF, provisioner.VF} {
		count := provisioner.FunctionCount{Type: kind}
		for _, f := range ofKind(functions, kind) {
			count.Total++
			if f.CtrlID == "" {
				count.Free++
			}
		}
		out = append(out, count)
	}
	_, err = d.plugging(ctx)
	switch {
	case err == nil:
		shared, err := d.sharing(ctx)
		return append(out, d.countPlugged(functions, shared.functions)), err
	case errors.Is(err, provisioner.ErrUnsupported):
		return out, nil
	}
	return nil, err
}

// countPlugged counts the ports of the PCI switch. One with a function that no
// controller is on is free: the next volume takes it. Those of virtio-fs have
// a list of their own.
func (d *DPU) countPlugged(functions []snaprpc.Function, shared []snaprpc.FSFunction) provisioner.FunctionCount {
	count := provisioner.FunctionCount{Type: provisioner.Hotplug, Total: d.hotplugLimit, Free: d.hotplugLimit - len(shared)}
	for _, f := range functions {
		if f.Hotplugged && isNVMe(f) && f.CtrlID != "" {
			count.Free--
		}
	}
	count.Free = max(0, count.Free)
	return count
}

// unread: a list that is refused says nothing about what is there.
var unread = map[int]error{
	snaprpc.CodeInvalidRequest: provisioner.ErrUnavailable,
	snaprpc.CodeInvalidParams:  provisioner.ErrUnavailable,
	snaprpc.CodeInvalid:        provisioner.ErrUnavailable,
	snaprpc.CodeNotFound:       provisioner.ErrUnavailable,
	snaprpc.CodeNoDevice:       provisioner.ErrUnavailable,
	snaprpc.CodeExists:         provisioner.ErrUnavailable,
	snaprpc.CodeTooLong:        provisioner.ErrUnavailable,
}

func (d *DPU) subsystems(ctx context.Context) ([]snaprpc.Subsystem, error) {
	all, err := d.rpc.NvmeSubsystemList(ctx)
	return all, explain(err, unread, "list the subsystems")
}

func (d *DPU) functions(ctx context.Context) ([]snaprpc.Function, error) {
	all, err := d.rpc.EmulationFunctionList(ctx)
	return all, explain(err, unread, "list the emulated functions")
}
