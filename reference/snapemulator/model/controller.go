package model

import (
	"fmt"
	"slices"
	"syscall"
)

// ControllerSpec is what nvme_controller_create asks for. The function is named
// by exactly one of BDF, VUID and PFID (with VFID for a virtual one).
type ControllerSpec struct {
	NQN string
	// Name is the controller's id; empty lets the service choose NVMeCtrlN.
	Name       string
	BDF, VUID  string
	PFID, VFID *int
	Suspended  bool
	AdminOnly  bool
	NumQueues  int
	MDTS       int
}

// CreateController makes a controller on a free function. ENOENT without the
// subsystem, ENODEV without the function, EBUSY if the function has a
// controller, EEXIST if the name is taken, EINVAL for bad values.
func (m *Model) CreateController(spec ControllerSpec) (*Controller, error) {
	s := m.subsystem(spec.NQN)
	if s == nil {
		return nil, Refuse(syscall.ENOENT, "subsystem %s", spec.NQN)
	}
	f, err := m.chooseFunction(spec)
	if err != nil {
		return nil, err
	}
	if f.Controller != nil {
		return nil, Refuse(syscall.EBUSY, "function %s has controller %s", f.VUID, f.Controller.ID)
	}
	if spec.NumQueues < 0 || spec.NumQueues > MaxQueues {
		return nil, Refuse(syscall.EINVAL, "num_queues %d is not in 1..%d", spec.NumQueues, MaxQueues)
	}
	if spec.MDTS < 0 || spec.MDTS > 7 {
		return nil, Refuse(syscall.EINVAL, "mdts %d is not in 1..7", spec.MDTS)
	}
	if spec.Name != "" && m.controller(spec.Name) != nil {
		return nil, Refuse(syscall.EEXIST, "controller %s", spec.Name)
	}
	c := &Controller{
		ID: spec.Name, Subsystem: s, Function: f, AdminOnly: spec.AdminOnly,
		NumQueues: spec.NumQueues, MDTS: spec.MDTS, State: Started, Resumed: !spec.Suspended,
	}
	m.fillController(c, spec)
	f.Controller, f.Taken = c, true
	s.Controllers = append(s.Controllers, c)
	return c, nil
}

func (m *Model) fillController(c *Controller, spec ControllerSpec) {
	if spec.Suspended {
		c.State = Suspended
	}
	if c.NumQueues == 0 {
		c.NumQueues = 1
	}
	if c.MDTS == 0 {
		c.MDTS = 7
	}
	for n := 1; c.ID == ""; n++ {
		if name := fmt.Sprintf("NVMeCtrl%d", n); m.controller(name) == nil {
			c.ID = name
		}
	}
}

func (m *Model) chooseFunction(spec ControllerSpec) (*Function, error) {
	ways := 0
	for _, given := range []bool{spec.BDF != "", spec.VUID != "", spec.PFID != nil} {
		if given {
			ways++
		}
	}
	if ways != 1 || (spec.VFID != nil && spec.PFID == nil) {
		return nil, Refuse(syscall.EINVAL, "name the function by one of pci_bdf, vuid, and pf_id with or without vf_id")
	}
	for _, f := range m.AllFunctions() {
		if !f.VirtioFS && f.named(spec) {
			return f, nil
		}
	}
	return nil, Refuse(syscall.ENODEV, "no function with %s", functionWords(spec))
}

func (f *Function) named(spec ControllerSpec) bool {
	switch {
	case spec.BDF != "":
		return f.BDF == spec.BDF && !f.Unlisted()
	case spec.VUID != "":
		return f.VUID == spec.VUID
	case spec.VFID != nil:
		return f.PFIndex == *spec.PFID && f.VFIndex == *spec.VFID
	default:
		return f.PFIndex == *spec.PFID && f.VFIndex < 0
	}
}

func functionWords(spec ControllerSpec) string {
	switch {
	case spec.BDF != "":
		return "pci_bdf " + spec.BDF
	case spec.VUID != "":
		return "vuid " + spec.VUID
	case spec.VFID != nil:
		return fmt.Sprintf("pf_id %d vf_id %d", *spec.PFID, *spec.VFID)
	default:
		return fmt.Sprintf("pf_id %d", *spec.PFID)
	}
}

// DestroyController removes a controller. ENOENT if it is not there; EBUSY
// while namespaces are attached, unless force, which detaches them; EBUSY also
// while its hot-plugged function is in the host: that is unplugged first.
func (m *Model) DestroyController(id string, force bool) error {
	c := m.controller(id)
	if c == nil {
		return Refuse(syscall.ENOENT, "controller %s", id)
	}
	if n := len(c.Namespaces()); n > 0 && !force {
		return Refuse(syscall.EBUSY, "controller %s has %d namespaces attached", id, n)
	}
	if c.Function.OnHost() && c.Function.Hotplugged() {
		return Refuse(syscall.EBUSY, "controller %s is on function %s, which is in the host: unplug it first", id, c.Function.VUID)
	}
	m.removeController(c)
	return nil
}

func (m *Model) removeController(c *Controller) {
	for _, ns := range c.Namespaces() {
		ns.Controller = nil
	}
	c.Function.Controller = nil
	s := c.Subsystem
	s.Controllers = slices.DeleteFunc(s.Controllers, func(x *Controller) bool { return x == c })
}

// AttachNamespace shows a namespace through a controller of its subsystem.
// ENOENT without either, EEXIST if it is attached there, EBUSY if it is
// attached to another controller, EINVAL for an admin-only controller.
func (m *Model) AttachNamespace(ctrlID string, nsid uint64) error {
	c, ns, err := m.pair(ctrlID, nsid)
	switch {
	case err != nil:
		return err
	case c.AdminOnly:
		return Refuse(syscall.EINVAL, "controller %s is admin-only", ctrlID)
	case ns.Controller == c:
		return Refuse(syscall.EEXIST, "namespace %d is attached to %s", nsid, ctrlID)
	case ns.Controller != nil:
		return Refuse(syscall.EBUSY, "namespace %d is attached to %s", nsid, ns.Controller.ID)
	}
	ns.Controller = c
	return nil
}

// DetachNamespace takes a namespace from a controller. ENOENT if it is not
// attached there.
func (m *Model) DetachNamespace(ctrlID string, nsid uint64) error {
	c, ns, err := m.pair(ctrlID, nsid)
	if err != nil {
		return err
	}
	if ns.Controller != c {
		return Refuse(syscall.ENOENT, "namespace %d is not attached to %s", nsid, ctrlID)
	}
	ns.Controller = nil
	return nil
}

func (m *Model) pair(ctrlID string, nsid uint64) (*Controller, *Namespace, error) {
	c := m.controller(ctrlID)
	if c == nil {
		return nil, nil, Refuse(syscall.ENOENT, "controller %s", ctrlID)
	}
	ns := c.Subsystem.namespace(nsid)
	if ns == nil {
		return nil, nil, Refuse(syscall.ENOENT, "namespace %d of %s", nsid, c.Subsystem.NQN)
	}
	return c, ns, nil
}

// Suspend stops a controller from serving I/O; ENOENT without it. Suspending
// a suspended one, like resuming a started one, changes nothing.
func (m *Model) Suspend(ctrlID string) error { return m.setState(ctrlID, Suspended) }

// Resume lets a controller serve I/O; ENOENT without it.
func (m *Model) Resume(ctrlID string) error { return m.setState(ctrlID, Started) }

func (m *Model) setState(ctrlID, state string) error {
	c := m.controller(ctrlID)
	if c == nil {
		return Refuse(syscall.ENOENT, "controller %s", ctrlID)
	}
	c.State = state
	c.Resumed = c.Resumed || state == Started
	return nil
}

// SetPending makes the function with the VUID report the address 00:00.0, or
// its own again. ENODEV without it.
func (m *Model) SetPending(vuid string, pending bool) error {
	for _, f := range m.AllFunctions() {
		if f.VUID == vuid {
			f.Pending = pending
			return nil
		}
	}
	return Refuse(syscall.ENODEV, "no function with vuid %s", vuid)
}

// Namespaces returns the namespaces that are attached to c.
func (c *Controller) Namespaces() []*Namespace {
	var out []*Namespace
	for _, ns := range c.Subsystem.Namespaces {
		if ns.Controller == c {
			out = append(out, ns)
		}
	}
	return out
}

func (m *Model) controller(id string) *Controller {
	for _, c := range m.Controllers() {
		if c.ID == id {
			return c
		}
	}
	return nil
}
