// Package model is the state of an emulated SNAP service and the rules that
// SNAP keeps over it: which subsystems, namespaces, controllers, functions and
// block devices there are, and which changes are refused with which errno.
//
// It is pure: no files, no sockets, no time, no locks. A refused change leaves
// the state as it was.
package model

import (
	"fmt"
	"hash/fnv"
)

// Limits of SNAP and of NVMe.
const (
	// MaxNQN is the longest NQN in bytes: NVM Express Base, 4.7.
	MaxNQN = 223
	// MaxVFs is the most virtual functions of one NVMe physical function.
	MaxVFs = 127
	// MaxPFs is the most static physical functions here; the second one lies
	// before the first virtual function of the first.
	MaxPFs = 2
	// DefaultNN is the largest namespace id of a subsystem by default.
	DefaultNN = 0xFFFFFFFE
	// DefaultMNAN is the most namespaces of a subsystem by default.
	DefaultMNAN = 1024
	// MaxQueues is the most I/O queues of a controller here.
	MaxQueues = 64
	// DefaultModelNumber is what SNAP reports when none is asked for.
	DefaultModelNumber = "BlueField NVMe SNAP Controller"
)

// The states of a controller.
const (
	Started   = "STARTED"
	Suspended = "SUSPENDED"
)

// Model is the state of one service. Use New; it is not safe for concurrent
// use. Slices keep the order of creation.
type Model struct {
	Functions  []*Function // physical functions, each with its virtual ones
	Subsystems []*Subsystem
	Bdevs      []*Bdev
	FS         VirtioFS

	config  Config
	newUUID func() string
}

// Config says which functions a service has.
type Config struct {
	// Name makes the VUIDs differ between services.
	Name string
	// PFs is the number of static physical functions, 1 if it is 0. The first
	// one has VFs virtual ones and, if there are any, the admin controller
	// without which a host cannot enable them.
	PFs, VFs int
	// HotplugSlots is how many functions can be plugged in at a time.
	HotplugSlots int
}

// Function is an emulated NVMe PCI function.
type Function struct {
	PFIndex int
	// VFIndex counts the virtual functions from 0; -1 for a physical one.
	VFIndex int
	// BDF is the PCI address as SNAP writes it: "26:00.2".
	BDF    string
	VUID   string
	VHCAID int
	// Index numbers the functions of a service: the same place has the same
	// number for ever.
	Index int
	// PF is the physical function of a virtual one; nil for the others.
	PF *Function
	// Plug is where a hot-plugged function stands; empty for the others.
	Plug Plug
	// VirtioFS is true for a function of virtio-fs, false for one of NVMe.
	VirtioFS bool
	// Pending makes the function report the address 00:00.0, as one that
	// the host has not enumerated.
	Pending bool
	VFs     []*Function
	// Controller is nil while the function has none.
	Controller *Controller
	// Taken is true once the function had a controller: since the start of the service.
	Taken bool
}

// Subsystem is an NVMe subsystem.
type Subsystem struct {
	NQN, SerialNumber, ModelNumber string
	NN, MNAN                       uint64
	Namespaces                     []*Namespace
	Controllers                    []*Controller
}

// Namespace is a namespace of a subsystem, over one bdev.
type Namespace struct {
	NSID      uint64
	UUID      string
	Bdev      *Bdev
	Subsystem *Subsystem
	// Controller is nil while the namespace is not attached.
	Controller *Controller
}

// Controller is an NVMe controller on a function.
type Controller struct {
	ID        string
	Subsystem *Subsystem
	Function  *Function
	AdminOnly bool
	NumQueues int
	MDTS      int
	State     string
	// Resumed is true once the controller was started: until then the host
	// has never seen its namespaces.
	Resumed bool
}

// Bdev is an SPDK block device.
type Bdev struct {
	Name, Product, UUID  string
	BlockSize, NumBlocks int64
	ReadOnly             bool
	// Filename is the file behind it; empty for a device in memory.
	Filename string
	// Target is the volume of a block target behind it, or nil.
	Target *Target
	// Fabric is the subsystem of NVMe over Fabrics behind it, or nil.
	Fabric *Fabric
	// QDPeriod is how often its queue depth is sampled, in microseconds; 0: never.
	QDPeriod uint64
	// Claim is the namespace that holds it, or nil.
	Claim *Namespace
}

// Target is a volume of a block target, without the secret that opens it.
type Target struct {
	Address, Volume, Node string
	// Fingerprint tells rights to one volume apart.
	Fingerprint string
}

// Size is the bdev's capacity in bytes.
func (b *Bdev) Size() int64 { return b.BlockSize * b.NumBlocks }

// New returns a service as it is after its start: the static functions, the
// subsystem and the admin controller of DPF's init configuration, and nothing
// else. newUUID is asked for identities that a caller leaves out.
func New(c Config, newUUID func() string) (*Model, error) {
	c.PFs = max(c.PFs, 1)
	switch {
	case c.VFs < 0 || c.VFs > MaxVFs:
		return nil, fmt.Errorf("%d virtual functions: a physical function has 0 to %d", c.VFs, MaxVFs)
	case c.PFs > MaxPFs:
		return nil, fmt.Errorf("%d static physical functions: there can be %d", c.PFs, MaxPFs)
	case c.HotplugSlots < 0 || c.HotplugSlots > MaxHotplug:
		return nil, fmt.Errorf("%d hot-plug functions: the PCI switch has ports for 0 to %d", c.HotplugSlots, MaxHotplug)
	}
	m := &Model{newUUID: newUUID, config: c, Functions: []*Function{newPF(c.Name, c.VFs)}}
	for i := 1; i < c.PFs; i++ {
		m.Functions = append(m.Functions, &Function{
			PFIndex: i, VFIndex: -1, BDF: bdf(i), VHCAID: 2 + MaxVFs + i, Index: MaxVFs + i,
			VUID: fmt.Sprintf("%sNVMES0D0F%d", serial(c.Name), 2+i),
		})
	}
	if err := m.CreateSubsystem(SubsystemSpec{NQN: InitNQN}); err != nil {
		return nil, fmt.Errorf("make the initial subsystem: %w", err)
	}
	if c.VFs == 0 {
		return m, nil
	}
	pf := 0
	spec := ControllerSpec{NQN: InitNQN, Name: "NVMeCtrl1", PFID: &pf, AdminOnly: true}
	if _, err := m.CreateController(spec); err != nil {
		return nil, fmt.Errorf("make the admin controller: %w", err)
	}
	return m, nil
}

// InitNQN is the subsystem that DPF's init configuration of SNAP makes.
const InitNQN = "nqn.2022-10.io.nvda.nvme:0"

// serial begins the VUIDs of a service.
func serial(name string) string {
	h := fnv.New32a()
	h.Write([]byte(name))
	sum := h.Sum32()
	return fmt.Sprintf("MT2328XZ%02X%02X", byte(sum>>8), byte(sum))
}

func newPF(name string, vfs int) *Function {
	vuid := serial(name) + "NVMES0D0F2"
	pf := &Function{VFIndex: -1, BDF: bdf(0), VUID: vuid, VHCAID: 2}
	for i := range vfs {
		pf.VFs = append(pf.VFs, &Function{
			VFIndex: i, PF: pf, Index: i + 1,
			// The first VF has offset 2 and stride 1, as on BlueField-3.
			BDF:    bdf(2 + i),
			VUID:   fmt.Sprintf("%sVF%d", vuid, i+1),
			VHCAID: 3 + i,
		})
	}
	return pf
}

// bdf writes the PCI address of the routing id devfn on bus 26: three bits of
// function, five of device (PCI Local Bus 3.0, 3.2.2.3.2).
func bdf(devfn int) string { return fmt.Sprintf("26:%02x.%d", devfn>>3, devfn&7) }

// AllFunctions returns every function, each physical one before its virtual
// ones.
func (m *Model) AllFunctions() []*Function {
	var out []*Function
	for _, pf := range m.Functions {
		out = append(out, pf)
		out = append(out, pf.VFs...)
	}
	return out
}

// Controllers returns every controller, by subsystem.
func (m *Model) Controllers() []*Controller {
	var out []*Controller
	for _, s := range m.Subsystems {
		out = append(out, s.Controllers...)
	}
	return out
}

// Visible is a namespace that the host can reach.
type Visible struct {
	Namespace *Namespace
	Function  *Function
	// Paused is true while the controller is suspended: the host's I/O waits.
	Paused bool
}

// Visible returns the namespaces that the host sees: attached to a controller
// that was started, on a function that is plugged in and of a physical one that
// has a controller.
func (m *Model) Visible() []Visible {
	var out []Visible
	for _, s := range m.Subsystems {
		for _, ns := range s.Namespaces {
			c := ns.Controller
			if c == nil || !c.Resumed || c.Function.physical().Controller == nil || !c.Function.OnHost() {
				continue
			}
			out = append(out, Visible{Namespace: ns, Function: c.Function, Paused: c.State == Suspended})
		}
	}
	return out
}

func (f *Function) physical() *Function {
	if f.PF != nil {
		return f.PF
	}
	return f
}
