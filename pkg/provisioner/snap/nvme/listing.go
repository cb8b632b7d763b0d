package nvme

import (
	"strings"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// started is the state of a controller that serves the host.
const started = "STARTED"

// listing is where a device is in the service's listing. Fields are nil for
// what is not there.
type listing struct {
	subsystem *snaprpc.Subsystem
	namespace *snaprpc.Namespace
	// controller shows the namespace, or is there to show it.
	controller *snaprpc.Controller
}

// find finds a device: in its own subsystem, or else in whichever holds it.
func find(subsystems []snaprpc.Subsystem, device string) listing {
	var p listing
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
func (p listing) own() bool { return p.subsystem != nil && Own(p.subsystem.NQN) }

// foreign reports whether the device is in a subsystem not made here.
func (p listing) foreign() bool { return p.subsystem != nil && !Own(p.subsystem.NQN) }

func (p listing) attached() bool { return p.namespace != nil && len(p.namespace.Controllers) > 0 }

// started reports whether the controller serves the host.
func (p listing) started() bool {
	return p.controller != nil && strings.EqualFold(p.controller.State, started)
}

// suspended reports whether a controller of ours is there that does not serve the host.
func (p listing) suspended() bool { return p.own() && p.controller != nil && !p.started() }

// serving reports whether the host can reach the namespace.
func (p listing) serving() bool { return p.attached() && p.started() }

// hidden reports whether all is there but the attachment of the namespace.
func (p listing) hidden() bool { return p.own() && p.namespace != nil && !p.attached() && p.started() }

func (p listing) findController() *snaprpc.Controller {
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
func (p listing) exposure(device string, functions []snaprpc.Function) provisioner.Exposure {
	e := provisioner.Exposure{Device: device}
	if p.namespace != nil {
		e.Device, e.NamespaceID, e.UUID = p.namespace.Bdev, p.namespace.NSID, p.namespace.UUID
	}
	if p.controller == nil {
		return e
	}
	f, found := functionWith(functions, p.controller.CtrlID)
	if found {
		e.VUID = vuidOf(functions, f)
	}
	if found && f.PCIBDF != snaprpc.PendingBDF {
		e.PCIAddress = f.PCIBDF
	}
	e.Visible = e.PCIAddress != "" && p.serving()
	e.Hidden = e.PCIAddress != "" && p.hidden()
	return e
}

// leftover reports whether p is what a withdrawal left of a hot-plugged
// function that the host had not let go of: a controller without a namespace.
// An exposure makes the namespace first.
func (p listing) leftover() bool {
	return p.own() && p.namespace == nil && len(p.subsystem.Controllers) > 0
}
