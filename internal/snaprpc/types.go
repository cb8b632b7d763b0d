package snaprpc

// PendingBDF is the PCI address of a function that the host has not been
// shown: SNAP reports it until the host has enumerated the function.
const PendingBDF = "00:00.0"

// EmulationNVMe is Function.EmulationType of an NVMe function.
const EmulationNVMe = "NVME"

// Subsystem is one element of nvme_subsystem_list.
type Subsystem struct {
	NQN          string       `json:"nqn"`
	ModelNumber  string       `json:"mn"`
	SerialNumber string       `json:"sn"`
	NN           uint64       `json:"nn"`
	MNAN         uint64       `json:"mnan"`
	Controllers  []Controller `json:"controllers"`
	Namespaces   []Namespace  `json:"namespaces"`
}

// Controller is a controller as SNAP lists it, in a subsystem or by itself.
type Controller struct {
	CtrlID     string        `json:"ctrl_id"`
	NQN        string        `json:"nqn"`
	State      string        `json:"state"`
	Plugged    bool          `json:"plugged"`
	VHCAID     int64         `json:"vhca_id"`
	MDTS       int64         `json:"mdts"`
	NumQueues  int64         `json:"num_queues"`
	MaxQueues  int64         `json:"max_queues"`
	Namespaces []AttachedRef `json:"namespaces"`
}

// AttachedRef is a namespace as listed in its controller.
type AttachedRef struct {
	NSID int64  `json:"nsid"`
	Bdev string `json:"bdev"`
	UUID string `json:"uuid"`
}

// Namespace is a namespace as listed in its subsystem.
type Namespace struct {
	NSID int64  `json:"nsid"`
	Bdev string `json:"bdev"`
	// Ready is the word "Yes" or "No".
	Ready string `json:"ready"`
	NQN   string `json:"nqn"`
	UUID  string `json:"uuid"`
	// MaxInflights has blanks in its key on the wire.
	MaxInflights int64     `json:"max inflights per weight"`
	Controllers  []CtrlRef `json:"controllers"`
}

// CtrlRef names a controller that a namespace is attached to.
type CtrlRef struct {
	CtrlID string `json:"ctrl_id"`
}

// Function is one element of emulation_function_list, or of its vfs.
type Function struct {
	Hotplugged    bool   `json:"hotplugged"`
	EmulationType string `json:"emulation_type"`
	PFIndex       int    `json:"pf_index"`
	// VFIndex is there for a virtual function only.
	VFIndex int `json:"vf_index,omitempty"`
	// PCIBDF is "bb:dd.f" without a domain, or PendingBDF.
	PCIBDF string `json:"pci_bdf"`
	VHCAID int64  `json:"vhca_id"`
	VUID   string `json:"vuid"`
	// CtrlID is empty while the function has no controller.
	CtrlID string     `json:"ctrl_id,omitempty"`
	VFs    []Function `json:"vfs,omitempty"`
}

// NamespaceSpec is what nvme_namespace_create is asked for.
type NamespaceSpec struct {
	// BdevType is "spdk"; it is filled in when empty.
	BdevType string `json:"bdev_type"`
	NQN      string `json:"nqn"`
	NSID     int64  `json:"nsid"`
	UUID     string `json:"uuid,omitempty"`
	BdevName string `json:"bdev_name"`
}

// ControllerSpec is what nvme_controller_create is asked for. Exactly one of
// PCIBDF, VUID and PFID names the function.
type ControllerSpec struct {
	NQN    string
	PCIBDF string
	VUID   string
	PFID   *int
	VFID   *int
	// CtrlID names the controller; the service chooses when it is empty.
	CtrlID string
	// Suspended creates it without serving the host's I/O: Resume follows.
	Suspended bool
	AdminOnly bool
	// Parameters are passed as they are: strings, integers and booleans by
	// their SNAP names. The fields above win over them.
	Parameters map[string]any
}

// wire returns the request's parameters.
func (s ControllerSpec) wire() map[string]any {
	p := make(map[string]any, len(s.Parameters)+5)
	for k, v := range s.Parameters {
		p[k] = v
	}
	p["nqn"] = s.NQN
	set(p, "pci_bdf", s.PCIBDF, s.PCIBDF != "")
	set(p, "vuid", s.VUID, s.VUID != "")
	set(p, "ctrl_id", s.CtrlID, s.CtrlID != "")
	set(p, "suspended", true, s.Suspended)
	set(p, "admin_only", true, s.AdminOnly)
	if s.PFID != nil {
		p["pf_id"] = *s.PFID
	}
	if s.VFID != nil {
		p["vf_id"] = *s.VFID
	}
	return p
}

func set(p map[string]any, key string, value any, there bool) {
	if there {
		p[key] = value
	}
}

// Bdev is one element of bdev_get_bdevs; what a driver adds is left out.
type Bdev struct {
	Name        string `json:"name"`
	ProductName string `json:"product_name"`
	UUID        string `json:"uuid"`
	// BlockSize is in bytes, NumBlocks in blocks of it.
	BlockSize int64 `json:"block_size"`
	NumBlocks int64 `json:"num_blocks"`
	Claimed   bool  `json:"claimed"`
	// DriverSpecific holds what the bdev's module tells of it.
	DriverSpecific DriverSpecific `json:"driver_specific"`
}

// SizeBytes is the bdev's capacity in bytes.
func (b Bdev) SizeBytes() int64 { return b.BlockSize * b.NumBlocks }

// DriverSpecific is the part of a bdev that depends on its module.
type DriverSpecific struct {
	AIO        *AIOBdev    `json:"aio,omitempty"`
	MoorTarget *TargetBdev `json:"moor_target,omitempty"`
	NVMe       []NVMeBdev  `json:"nvme,omitempty"`
}

// AIOBdev tells of a bdev over a file or device of the DPU.
type AIOBdev struct {
	Filename  string `json:"filename"`
	ReadOnly  bool   `json:"readonly"`
	Fallocate bool   `json:"fallocate"`
}

// AIOSpec is what bdev_aio_create is asked for.
type AIOSpec struct {
	Name     string `json:"name"`
	Filename string `json:"filename"`
	// BlockSize in bytes; 0 leaves it to the service (the file's own, or 512).
	BlockSize int64  `json:"block_size,omitempty"`
	ReadOnly  bool   `json:"readonly,omitempty"`
	UUID      string `json:"uuid,omitempty"`
}
