package model

import (
	"slices"
	"syscall"
)

// Limits of virtio-fs.
const (
	// MaxFSDevName is the longest name of an fsdev in bytes: a memory pool is
	// named for it, and pools have short names.
	MaxFSDevName = 21
	// MaxTag is the longest tag in bytes: virtio 1.3, 5.11.4.
	MaxTag = 36
	// Transport is the one transport there is, and Manager the one device that
	// can manage emulated functions.
	Transport = "DOCA"
	Manager   = "mlx5_0"
	// DefaultQueueSize is the size of a request queue by default.
	DefaultQueueSize = 256
)

// VirtioFS is the state of the virtio-fs service. A new one has nothing.
type VirtioFS struct {
	// Transport is "" (none), TransportStopped or TransportStarted.
	Transport string
	// Managed is true once the manager was made.
	Managed bool
	FSDevs  []*FSDev
	Devices []*FSDevice
}

// The states of the transport.
const (
	TransportStopped = "stopped"
	TransportStarted = "started"
)

// FSDev is a directory of the DPU that can be shown as a file system.
type FSDev struct {
	Name, RootPath string
	// Claim is the device that shows it, or nil.
	Claim *FSDevice
}

// FSDevice is a virtio-fs device.
type FSDevice struct {
	Name, Tag         string
	Queues, QueueSize int
	FSDev             *FSDev
	// Function is nil until the device was given one.
	Function *Function
	Running  bool
}

// OnHost reports whether the host can mount the device.
func (d *FSDevice) OnHost() bool { return d.Running && d.Function != nil && d.Function.OnHost() }

// CreateFSDev makes an fsdev. EINVAL for a bad name, EEXIST if it is taken.
func (m *Model) CreateFSDev(name, rootPath string) error {
	switch {
	case name == "" || len(name) > MaxFSDevName:
		return Refuse(syscall.EINVAL, "the name of an fsdev has 1 to %d bytes, not %d", MaxFSDevName, len(name))
	case m.FSDev(name) != nil:
		return Refuse(syscall.EEXIST, "fsdev %s", name)
	}
	m.FS.FSDevs = append(m.FS.FSDevs, &FSDev{Name: name, RootPath: rootPath})
	return nil
}

// DeleteFSDev removes an fsdev. ENODEV without it, EBUSY while a device shows it.
func (m *Model) DeleteFSDev(name string) error {
	d := m.FSDev(name)
	switch {
	case d == nil:
		return Refuse(syscall.ENODEV, "fsdev %s", name)
	case d.Claim != nil:
		return Refuse(syscall.EBUSY, "fsdev %s is shown by device %s", name, d.Claim.Name)
	}
	m.FS.FSDevs = slices.DeleteFunc(m.FS.FSDevs, func(x *FSDev) bool { return x == d })
	return nil
}

// FSDev returns the fsdev called name, or nil.
func (m *Model) FSDev(name string) *FSDev {
	for _, d := range m.FS.FSDevs {
		if d.Name == name {
			return d
		}
	}
	return nil
}

// CreateTransport makes the transport; EINVAL for another, EEXIST if it is there.
func (m *Model) CreateTransport(name string) error {
	switch {
	case name != Transport:
		return Refuse(syscall.EINVAL, "transport %q, only %s is known", name, Transport)
	case m.FS.Transport != "":
		return Refuse(syscall.EEXIST, "transport %s", name)
	}
	m.FS.Transport = TransportStopped
	return nil
}

// SetTransport starts or stops the transport; ENODEV without it, EBUSY to stop
// it while devices run. One that is so already is left so.
func (m *Model) SetTransport(name string, started bool) error {
	if err := m.transport(name); err != nil {
		return err
	}
	m.FS.Transport = TransportStarted
	if started {
		return nil
	}
	for _, d := range m.FS.Devices {
		if d.Running {
			return Refuse(syscall.EBUSY, "device %s runs on transport %s", d.Name, name)
		}
	}
	m.FS.Transport = TransportStopped
	return nil
}

// DestroyTransport removes the transport; EBUSY while it is started or has
// devices.
func (m *Model) DestroyTransport(name string) error {
	if err := m.transport(name); err != nil {
		return err
	}
	if m.FS.Transport == TransportStarted || len(m.FS.Devices) > 0 {
		return Refuse(syscall.EBUSY, "transport %s is %s and has %d devices", name, m.FS.Transport, len(m.FS.Devices))
	}
	m.FS.Transport = ""
	return nil
}

func (m *Model) transport(name string) error {
	if name != Transport || m.FS.Transport == "" {
		return Refuse(syscall.ENODEV, "transport %q", name)
	}
	return nil
}

// CreateManager makes the manager; ENODEV for another, EEXIST if it is there.
func (m *Model) CreateManager(name string) error {
	switch {
	case name != Manager:
		return Refuse(syscall.ENODEV, "manager %q", name)
	case m.FS.Managed:
		return Refuse(syscall.EEXIST, "manager %s", name)
	}
	m.FS.Managed = true
	return nil
}

// DestroyManager removes the manager; EBUSY while devices use its functions.
func (m *Model) DestroyManager(name string) error {
	if err := m.manager(name); err != nil {
		return err
	}
	for _, d := range m.FS.Devices {
		if d.Function != nil {
			return Refuse(syscall.EBUSY, "device %s uses function %s", d.Name, d.Function.VUID)
		}
	}
	m.FS.Managed = false
	return nil
}

func (m *Model) manager(name string) error {
	if name != Manager || !m.FS.Managed {
		return Refuse(syscall.ENODEV, "manager %q", name)
	}
	return nil
}
