package model

import (
	"fmt"
	"slices"
	"syscall"
)

// MaxHotplug is the most functions that can be plugged in at a time: the PCI
// switch has 32 ports (PCI_SWITCH_EMULATION_NUM_PORT), one of which is for the
// static functions.
const MaxHotplug = 31

// Plug is where a hot-plugged function stands.
type Plug string

// The stands of a hot-plugged function: made but not plugged in, waiting for
// the host to enumerate it, in the host, and waiting for the host to let go.
const (
	PlugOff    Plug = "off"
	PlugComing Plug = "coming"
	PlugOn     Plug = "on"
	PlugGoing  Plug = "going"
)

// Hotplugged reports whether the function was plugged in at run time.
func (f *Function) Hotplugged() bool { return f.Plug != "" }

// OnHost reports whether the host has the function: a static one always.
func (f *Function) OnHost() bool {
	return f.Plug == "" || f.Plug == PlugOn || f.Plug == PlugGoing
}

// Unlisted reports whether the function shows the address 00:00.0.
func (f *Function) Unlisted() bool { return f.Pending || !f.OnHost() }

// hotplugBus is the PCI bus of the first port of the switch; each port has one.
const hotplugBus = 0x30

// CreateFunction makes a function in the lowest free port; with plug it is
// plugged in at once. ENOSPC if every port is taken.
func (m *Model) CreateFunction(plug bool) (*Function, error) {
	for slot := range m.config.HotplugSlots {
		if m.inSlot(slot) != nil {
			continue
		}
		f := m.newHotplug(slot)
		if plug {
			f.Plug = PlugComing
		}
		m.Functions = append(m.Functions, f)
		return f, nil
	}
	return nil, Refuse(syscall.ENOSPC, "all %d ports for hot-plugged functions are taken", m.config.HotplugSlots)
}

func (m *Model) newHotplug(slot int) *Function {
	return &Function{
		PFIndex: MaxPFs + slot, VFIndex: -1, Plug: PlugOff,
		BDF: fmt.Sprintf("%02x:00.0", hotplugBus+slot), VHCAID: 2 + MaxVFs + MaxPFs + slot,
		VUID: fmt.Sprintf("%sNVMES%dD0F0", serial(m.config.Name), 1+slot), Index: MaxVFs + MaxPFs + slot,
	}
}

// toFS makes a function that was just made one of virtio-fs.
func (f *Function) toFS(m *Model) {
	f.VirtioFS, f.VUID = true, fmt.Sprintf("%sVFSS%dD0F0", serial(m.config.Name), f.PFIndex-MaxPFs+1)
}

func (m *Model) inSlot(slot int) *Function {
	for _, f := range m.Functions {
		if f.Hotplugged() && f.PFIndex == MaxPFs+slot {
			return f
		}
	}
	return nil
}

// DestroyFunction removes a hot-plugged function. ENODEV if it is not there or
// static, EBUSY while it has a controller or, unless force, the host has it.
func (m *Model) DestroyFunction(vuid string, force bool) error {
	f, err := m.hotplugged(vuid)
	switch {
	case err != nil:
		return err
	case f.Controller != nil:
		return Refuse(syscall.EBUSY, "function %s has controller %s", vuid, f.Controller.ID)
	case f.Plug != PlugOff && !force:
		return Refuse(syscall.EBUSY, "function %s is plugged in", vuid)
	}
	m.Functions = slices.DeleteFunc(m.Functions, func(x *Function) bool { return x == f })
	return nil
}

// PullFunction begins to take a function out of the host by its VUID; one that
// is out already is left so. ENODEV if it is not there or static.
func (m *Model) PullFunction(vuid string) error {
	f, err := m.hotplugged(vuid)
	if err != nil {
		return err
	}
	f.pull()
	return nil
}

// PlugController begins to plug in the function of a controller. ENOENT
// without the controller, EINVAL on a static function, EEXIST if it is plugged
// in already, or on its way.
func (m *Model) PlugController(ctrlID string) (*Function, error) {
	f, err := m.plugOf(ctrlID)
	switch {
	case err != nil:
		return nil, err
	case f.Plug != PlugOff:
		return nil, Refuse(syscall.EEXIST, "function %s of controller %s is plugged in", f.VUID, ctrlID)
	}
	f.Plug = PlugComing
	return f, nil
}

// UnplugController begins to take the function of a controller out of the host.
// ENOENT without the controller, EINVAL on a static function or one that is out.
func (m *Model) UnplugController(ctrlID string) (*Function, error) {
	f, err := m.plugOf(ctrlID)
	switch {
	case err != nil:
		return nil, err
	case f.Plug == PlugOff:
		return nil, Refuse(syscall.EINVAL, "function %s of controller %s is not plugged in", f.VUID, ctrlID)
	}
	f.pull()
	return f, nil
}

// pull starts the way out; a function that never arrived is out at once.
func (f *Function) pull() {
	switch f.Plug {
	case PlugOn:
		f.Plug = PlugGoing
	case PlugComing:
		f.Plug = PlugOff
	}
}

func (m *Model) plugOf(ctrlID string) (*Function, error) {
	c := m.controller(ctrlID)
	switch {
	case c == nil:
		return nil, Refuse(syscall.ENOENT, "controller %s", ctrlID)
	case !c.Function.Hotplugged():
		return nil, Refuse(syscall.EINVAL, "function %s of controller %s is static", c.Function.VUID, ctrlID)
	}
	return c.Function, nil
}

func (m *Model) hotplugged(vuid string) (*Function, error) {
	for _, f := range m.Functions {
		if f.VUID == vuid && f.Hotplugged() {
			return f, nil
		}
	}
	return nil, Refuse(syscall.ENODEV, "no hot-plugged function with vuid %s", vuid)
}

// Settle has the host enumerate what was plugged in, and, if it answers, let go
// of what is to go. It reports whether anything changed.
func (m *Model) Settle(answers bool) bool {
	changed := false
	for _, f := range m.Functions {
		switch {
		case f.Plug == PlugComing && answers:
			f.Plug, changed = PlugOn, true
		case f.Plug == PlugGoing && answers:
			f.Plug, changed = PlugOff, true
		}
	}
	return changed
}

// Unsettled reports whether the host has something to enumerate or let go.
func (m *Model) Unsettled() bool {
	return slices.ContainsFunc(m.Functions, func(f *Function) bool { return f.Plug == PlugComing || f.Plug == PlugGoing })
}

// LoseHost is the power failure of the host: it has to enumerate everything
// that is plugged in again, and what was to go is gone.
func (m *Model) LoseHost() {
	for _, f := range m.Functions {
		switch f.Plug {
		case PlugOn:
			f.Plug = PlugComing
		case PlugGoing:
			f.Plug = PlugOff
		}
	}
}

// PluggedFunction is what outlives the service of a hot-plugged function.
type PluggedFunction struct {
	Slot     int  `json:"slot"`
	Plug     Plug `json:"plug"`
	VirtioFS bool `json:"virtioFS,omitempty"`
}

// Plugged returns the hot-plugged functions, to be restored by a service that
// is started again.
func (m *Model) Plugged() []PluggedFunction {
	out := []PluggedFunction{}
	for _, f := range m.Functions {
		if f.Hotplugged() {
			out = append(out, PluggedFunction{Slot: f.PFIndex - MaxPFs, Plug: f.Plug, VirtioFS: f.VirtioFS})
		}
	}
	return out
}

// Restore makes the functions that an earlier service left. EINVAL for a port
// that there is not, or that is taken.
func (m *Model) Restore(left []PluggedFunction) error {
	for _, l := range left {
		known := slices.Contains([]Plug{PlugOff, PlugComing, PlugOn, PlugGoing}, l.Plug)
		if l.Slot < 0 || l.Slot >= m.config.HotplugSlots || m.inSlot(l.Slot) != nil || !known {
			return Refuse(syscall.EINVAL, "a function in port %d, %q, of %d", l.Slot, l.Plug, m.config.HotplugSlots)
		}
		f := m.newHotplug(l.Slot)
		if f.Plug = l.Plug; l.VirtioFS {
			f.toFS(m)
		}
		m.Functions = append(m.Functions, f)
	}
	return nil
}
