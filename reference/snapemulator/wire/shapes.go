package wire

import (
	"net"
	"strings"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/snapemulator/model"
)

// FunctionShape is a function as the service lists it. It differs from the
// client's by writing vf_index 0.
type FunctionShape struct {
	Hotplugged    bool            `json:"hotplugged"`
	EmulationType string          `json:"emulation_type"`
	PFIndex       int             `json:"pf_index"`
	VFIndex       *int            `json:"vf_index,omitempty"`
	PCIBDF        string          `json:"pci_bdf"`
	VHCAID        int             `json:"vhca_id"`
	VUID          string          `json:"vuid"`
	CtrlID        string          `json:"ctrl_id,omitempty"`
	VFs           []FunctionShape `json:"vfs,omitempty"`
}

// FunctionsOf are the physical functions as the service lists them.
func FunctionsOf(m *model.Model) []FunctionShape {
	out := []FunctionShape{}
	for _, f := range m.Functions {
		if !f.VirtioFS {
			out = append(out, FunctionOf(f))
		}
	}
	return out
}

// FunctionOf is a function as the service lists it, with its virtual functions.
func FunctionOf(f *model.Function) FunctionShape {
	s := FunctionShape{Hotplugged: f.Hotplugged(), EmulationType: snaprpc.EmulationNVMe, PFIndex: f.PFIndex, PCIBDF: f.BDF, VHCAID: f.VHCAID, VUID: f.VUID}
	if f.VFIndex >= 0 {
		s.VFIndex = &f.VFIndex
	}
	if f.Unlisted() {
		s.PCIBDF = snaprpc.PendingBDF
	}
	if f.Controller != nil {
		s.CtrlID = f.Controller.ID
	}
	for _, vf := range f.VFs {
		s.VFs = append(s.VFs, FunctionOf(vf))
	}
	return s
}

// SubsystemsOf are the NVMe subsystems as the service lists them.
func SubsystemsOf(m *model.Model) []snaprpc.Subsystem {
	out := []snaprpc.Subsystem{}
	for _, s := range m.Subsystems {
		shape := snaprpc.Subsystem{
			NQN: s.NQN, ModelNumber: s.ModelNumber, SerialNumber: s.SerialNumber, NN: s.NN, MNAN: s.MNAN,
			Controllers: ControllersOf(s.Controllers), Namespaces: []snaprpc.Namespace{},
		}
		for _, ns := range s.Namespaces {
			shape.Namespaces = append(shape.Namespaces, NamespaceOf(ns))
		}
		out = append(out, shape)
	}
	return out
}

// NamespaceOf is a namespace as the service lists it.
func NamespaceOf(ns *model.Namespace) snaprpc.Namespace {
	shape := snaprpc.Namespace{
		NSID: int64(ns.NSID), Bdev: ns.Bdev.Name, Ready: "Yes", NQN: ns.Subsystem.NQN,
		UUID: ns.UUID, MaxInflights: 65535, Controllers: []snaprpc.CtrlRef{},
	}
	if ns.Controller != nil {
		shape.Controllers = append(shape.Controllers, snaprpc.CtrlRef{CtrlID: ns.Controller.ID})
	}
	return shape
}

// ControllersOf are controllers as the service lists them.
func ControllersOf(all []*model.Controller) []snaprpc.Controller {
	out := []snaprpc.Controller{}
	for _, c := range all {
		out = append(out, ControllerOf(c))
	}
	return out
}

// ControllerOf is a controller as the service lists it.
func ControllerOf(c *model.Controller) snaprpc.Controller {
	shape := snaprpc.Controller{
		CtrlID: c.ID, NQN: c.Subsystem.NQN, State: c.State, Plugged: c.Function.Plug != model.PlugOff, VHCAID: int64(c.Function.VHCAID),
		MDTS: int64(c.MDTS), NumQueues: int64(c.NumQueues), MaxQueues: model.MaxQueues, Namespaces: []snaprpc.AttachedRef{},
	}
	for _, ns := range c.Namespaces() {
		shape.Namespaces = append(shape.Namespaces, snaprpc.AttachedRef{NSID: int64(ns.NSID), Bdev: ns.Bdev.Name, UUID: ns.UUID})
	}
	return shape
}

// BdevShape is a bdev as SPDK lists it, as far as clients here read it.
type BdevShape struct {
	Name           string         `json:"name"`
	Aliases        []string       `json:"aliases"`
	ProductName    string         `json:"product_name"`
	BlockSize      int64          `json:"block_size"`
	NumBlocks      int64          `json:"num_blocks"`
	UUID           string         `json:"uuid"`
	Claimed        bool           `json:"claimed"`
	Zoned          bool           `json:"zoned"`
	IOTypes        map[string]any `json:"supported_io_types"`
	DriverSpecific map[string]any `json:"driver_specific"`
}

// BdevOf is a block device as SPDK lists it.
func BdevOf(b *model.Bdev) BdevShape {
	shape := BdevShape{
		Name: b.Name, Aliases: []string{b.UUID}, ProductName: b.Product, BlockSize: b.BlockSize,
		NumBlocks: b.NumBlocks, UUID: b.UUID, Claimed: b.Claim != nil, DriverSpecific: map[string]any{},
		IOTypes: map[string]any{"read": true, "write": !b.ReadOnly, "flush": true, "unmap": !b.ReadOnly, "reset": true},
	}
	if b.Product == model.AIO {
		shape.DriverSpecific["aio"] = map[string]any{"filename": b.Filename, "block_size_override": true, "readonly": b.ReadOnly, "fallocate": false}
	}
	if f := b.Fabric; f != nil {
		shape.DriverSpecific["nvme"] = []any{map[string]any{"trid": TridOf(f), "ns_data": map[string]int{"id": 1}}}
	}
	if t := b.Target; t != nil {
		shape.DriverSpecific["moor_target"] = snaprpc.TargetBdev{
			Address: t.Address, Volume: t.Volume, Node: t.Node,
			Fingerprint: t.Fingerprint, ReadOnly: b.ReadOnly,
		}
	}
	return shape
}

// TridOf is the transport ID of a fabric path, as SPDK writes it.
func TridOf(f *model.Fabric) snaprpc.TransportID {
	return snaprpc.TransportID{TrType: f.TrType, AdrFam: f.AdrFam, TrAddr: f.TrAddr, TrSvcID: f.TrSvcID, SubNQN: f.SubNQN}
}

// targetNQN begins the name of the subsystem that a volume of a block target stands for.
const targetNQN = "nqn.2022-10.io.moor:target:"

// TridOfTarget is the transport ID that a volume of a block target would have, were it
// reached by NVMe over Fabrics.
func TridOfTarget(t *model.Target) snaprpc.TransportID {
	out := snaprpc.TransportID{TrType: "TCP", AdrFam: "IPv4", TrAddr: t.Address, SubNQN: targetNQN + t.Volume}
	if host, port, err := net.SplitHostPort(t.Address); err == nil {
		out.TrAddr, out.TrSvcID = host, port
	}
	if strings.Contains(out.TrAddr, ":") {
		out.AdrFam = "IPv6"
	}
	return out
}
