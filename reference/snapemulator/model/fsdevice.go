package model

import (
	"slices"
	"syscall"
)

// FSDeviceSpec is what virtio_fs_device_create asks for.
type FSDeviceSpec struct {
	Transport, Name, Tag, FSDev string
	// Queues is the number of request queues, QueueSize their size; 0 for both
	// leaves them to the service.
	Queues, QueueSize int
}

// CreateFSDevice makes a device, without a function. ENODEV without the
// transport or the fsdev, EEXIST if the name or the tag is taken, EBUSY if
// another device shows the fsdev, EINVAL for bad values.
func (m *Model) CreateFSDevice(spec FSDeviceSpec) error {
	if err := m.transport(spec.Transport); err != nil {
		return err
	}
	if spec.Queues == 0 {
		spec.Queues = 1
	}
	if spec.QueueSize == 0 {
		spec.QueueSize = DefaultQueueSize
	}
	if err := m.checkFSDevice(spec); err != nil {
		return err
	}
	backing := m.FSDev(spec.FSDev)
	switch {
	case backing == nil:
		return Refuse(syscall.ENODEV, "fsdev %s", spec.FSDev)
	case backing.Claim != nil:
		return Refuse(syscall.EBUSY, "fsdev %s is shown by device %s", spec.FSDev, backing.Claim.Name)
	}
	d := &FSDevice{Name: spec.Name, Tag: spec.Tag, Queues: spec.Queues, QueueSize: spec.QueueSize, FSDev: backing}
	backing.Claim = d
	m.FS.Devices = append(m.FS.Devices, d)
	return nil
}

func (m *Model) checkFSDevice(spec FSDeviceSpec) error {
	switch {
	case spec.Name == "" || spec.Tag == "" || len(spec.Tag) > MaxTag:
		return Refuse(syscall.EINVAL, "a device has a name, and a tag of 1 to %d bytes", MaxTag)
	case spec.Queues < 0 || spec.Queues > MaxQueues:
		return Refuse(syscall.EINVAL, "num_request_queues %d is not in 1..%d", spec.Queues, MaxQueues)
	case spec.QueueSize < 0 || spec.QueueSize&(spec.QueueSize-1) != 0:
		return Refuse(syscall.EINVAL, "queue_size %d is no power of two", spec.QueueSize)
	}
	for _, d := range m.FS.Devices {
		if d.Name == spec.Name || d.Tag == spec.Tag {
			return Refuse(syscall.EEXIST, "device %s with tag %s", d.Name, d.Tag)
		}
	}
	return nil
}

// ModifyFSDevice gives a device its function. ENODEV without device, manager or
// function; EBUSY while the device runs, or if another has the function.
func (m *Model) ModifyFSDevice(name, manager, vuid string) error {
	d, err := m.fsDevice(name)
	if err == nil {
		err = m.manager(manager)
	}
	if err != nil {
		return err
	}
	f := m.FSFunction(vuid)
	switch {
	case f == nil:
		return Refuse(syscall.ENODEV, "no virtio-fs function with vuid %s", vuid)
	case d.Running:
		return Refuse(syscall.EBUSY, "device %s runs", name)
	}
	if other := m.fsDeviceOn(f); other != nil && other != d {
		return Refuse(syscall.EBUSY, "device %s has function %s", other.Name, vuid)
	}
	d.Function = f
	return nil
}

// StartFSDevice lets a device serve; EINVAL without a function or while the
// transport is stopped, EEXIST if it runs.
func (m *Model) StartFSDevice(name string) error {
	d, err := m.fsDevice(name)
	switch {
	case err != nil:
		return err
	case d.Running:
		return Refuse(syscall.EEXIST, "device %s runs", name)
	case d.Function == nil || m.FS.Transport != TransportStarted:
		return Refuse(syscall.EINVAL, "device %s has no function, or its transport is stopped", name)
	}
	d.Running = true
	return nil
}

// StopFSDevice ends it: the host's I/O fails from then on. EBUSY while the host
// has the function, EINVAL if it does not run.
func (m *Model) StopFSDevice(name string) error {
	d, err := m.fsDevice(name)
	switch {
	case err != nil:
		return err
	case !d.Running:
		return Refuse(syscall.EINVAL, "device %s does not run", name)
	case d.Function.OnHost():
		return Refuse(syscall.EBUSY, "device %s is in the host: unplug it first", name)
	}
	d.Running = false
	return nil
}

// DestroyFSDevice removes a device; EBUSY while it runs.
func (m *Model) DestroyFSDevice(name string) error {
	d, err := m.fsDevice(name)
	switch {
	case err != nil:
		return err
	case d.Running:
		return Refuse(syscall.EBUSY, "device %s runs", name)
	}
	d.FSDev.Claim = nil
	m.FS.Devices = slices.DeleteFunc(m.FS.Devices, func(x *FSDevice) bool { return x == d })
	return nil
}

// PlugFSDevice begins to plug in the function of a device that runs, and
// UnplugFSDevice to take it out; errors as for controllers.
func (m *Model) PlugFSDevice(name string) (*Function, error) {
	d, err := m.fsDevice(name)
	switch {
	case err != nil:
		return nil, err
	case !d.Running:
		return nil, Refuse(syscall.EINVAL, "device %s does not run", name)
	case d.Function.Plug != PlugOff:
		return nil, Refuse(syscall.EEXIST, "device %s is plugged in", name)
	}
	d.Function.Plug = PlugComing
	return d.Function, nil
}

// UnplugFSDevice undoes PlugFSDevice.
func (m *Model) UnplugFSDevice(name string) (*Function, error) {
	d, err := m.fsDevice(name)
	switch {
	case err != nil:
		return nil, err
	case d.Function == nil || d.Function.Plug == PlugOff:
		return nil, Refuse(syscall.EINVAL, "device %s is not plugged in", name)
	}
	d.Function.pull()
	return d.Function, nil
}

// CreateFSFunction makes a virtio-fs function in the lowest free port, which it
// shares with those of NVMe.
func (m *Model) CreateFSFunction(manager string) (*Function, error) {
	if err := m.manager(manager); err != nil {
		return nil, err
	}
	f, err := m.CreateFunction(false)
	if err != nil {
		return nil, err
	}
	f.toFS(m)
	return f, nil
}

// DestroyFSFunction removes one that no device has and the host does not see.
func (m *Model) DestroyFSFunction(manager, vuid string) error {
	if err := m.manager(manager); err != nil {
		return err
	}
	f := m.FSFunction(vuid)
	switch {
	case f == nil:
		return Refuse(syscall.ENODEV, "no virtio-fs function with vuid %s", vuid)
	case m.fsDeviceOn(f) != nil:
		return Refuse(syscall.EBUSY, "device %s has function %s", m.fsDeviceOn(f).Name, vuid)
	}
	return m.DestroyFunction(vuid, false)
}

// FSFunction returns the virtio-fs function with the VUID, or nil.
func (m *Model) FSFunction(vuid string) *Function {
	for _, f := range m.Functions {
		if f.VirtioFS && f.VUID == vuid {
			return f
		}
	}
	return nil
}

func (m *Model) fsDeviceOn(f *Function) *FSDevice {
	for _, d := range m.FS.Devices {
		if d.Function == f {
			return d
		}
	}
	return nil
}

func (m *Model) fsDevice(name string) (*FSDevice, error) {
	for _, d := range m.FS.Devices {
		if d.Name == name {
			return d, nil
		}
	}
	return nil, Refuse(syscall.ENODEV, "virtio-fs device %s", name)
}
