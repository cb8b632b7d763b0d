package nvme

import (
	"fmt"
	"slices"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
)

// wanted says which function an exposure asks for.
type wanted struct {
	device   string
	kind     provisioner.FunctionType
	recorded string // PCI address of an earlier exposure, or empty
}

// choose picks the function for an exposure: the one at the recorded address,
// or the first free one of the kind wanted, in the service's order. A function
// that has a controller is never picked, nor one that reserved promises to
// another device. Errors: ErrInUse if the recorded function is taken,
// ErrUnavailable if the host does not show it now, and ErrExhausted.
// Hot-plugged functions are chosen by chooseSpare.
func choose(functions []snaprpc.Function, want wanted, reserved map[string]string) (snaprpc.Function, error) {
	if want.recorded != "" {
		return chooseRecorded(functions, want)
	}
	promised := promises(reserved)
	candidates := ofKind(functions, want.kind)
	unlisted := 0
	for _, f := range candidates {
		owner, taken := promised[service.Bare(f.PCIBDF)]
		switch {
		case f.CtrlID != "" || (taken && owner != want.device):
		case pending(f):
			unlisted++
		default:
			return f, nil
		}
	}
	if unlisted > 0 {
		return snaprpc.Function{}, fmt.Errorf("%d %s functions are free, but the host has not enumerated them yet: %w", unlisted, want.kind, provisioner.ErrUnavailable)
	}
	return snaprpc.Function{}, fmt.Errorf("none of %d %s functions is free: detach a volume from this host, or let it have more functions: %w",
		len(candidates), want.kind, provisioner.ErrExhausted)
}

func chooseRecorded(functions []snaprpc.Function, want wanted) (snaprpc.Function, error) {
	f, ok := functionAt(functions, want.recorded)
	if !ok {
		return f, fmt.Errorf("the host knows this volume at PCI address %s, and there is no such function now: has the host enabled its virtual functions? %w",
			want.recorded, provisioner.ErrUnavailable)
	}
	if f.CtrlID != "" {
		return f, fmt.Errorf("the host knows this volume at PCI address %s, and that function carries controller %s of another volume: detach one of them: %w",
			want.recorded, f.CtrlID, provisioner.ErrInUse)
	}
	return f, nil
}

// ofKind returns the NVMe functions of a kind, in listing order. A static
// physical function serves for PF; a hot-plugged one belongs to its volume.
func ofKind(functions []snaprpc.Function, kind provisioner.FunctionType) []snaprpc.Function {
	var out []snaprpc.Function
	for _, pf := range functions {
		if kind == provisioner.PF && isNVMe(pf) && !pf.Hotplugged {
			out = append(out, pf)
		}
		if kind != provisioner.VF {
			continue
		}
		for _, vf := range pf.VFs {
			if isNVMe(vf) {
				out = append(out, vf)
			}
		}
	}
	return out
}

// functionAt returns the NVMe function at a PCI address.
func functionAt(functions []snaprpc.Function, address string) (snaprpc.Function, bool) {
	return pick(functions, func(f snaprpc.Function) bool {
		return f.PCIBDF != snaprpc.PendingBDF && service.Bare(f.PCIBDF) == service.Bare(address)
	})
}

// functionWith returns the NVMe function that carries a controller.
func functionWith(functions []snaprpc.Function, ctrlID string) (snaprpc.Function, bool) {
	return pick(functions, func(f snaprpc.Function) bool { return ctrlID != "" && f.CtrlID == ctrlID })
}

// vuidOf returns what a host reads on a function of its Vital Product Data: a
// virtual function has none of its own, and leads to that of its physical one.
func vuidOf(functions []snaprpc.Function, f snaprpc.Function) string {
	for _, pf := range functions {
		if slices.ContainsFunc(pf.VFs, func(vf snaprpc.Function) bool { return vf.CtrlID == f.CtrlID && vf.PCIBDF == f.PCIBDF }) {
			return pf.VUID
		}
	}
	return f.VUID
}

func pick(functions []snaprpc.Function, is func(snaprpc.Function) bool) (snaprpc.Function, bool) {
	for _, pf := range functions {
		for _, f := range append([]snaprpc.Function{pf}, pf.VFs...) {
			if isNVMe(f) && is(f) {
				return f, true
			}
		}
	}
	return snaprpc.Function{}, false
}

func isNVMe(f snaprpc.Function) bool { return f.EmulationType == snaprpc.EmulationNVMe }

// chooseSpare picks a hot-plugged function that is there already and free: one that the host
// does not have, if pendingToo, of which it does not matter which one it is, as the identity of
// the volume is its UUID. One that the host has may have kept requests, which are served by the
// next controller there, and no controller there can be destroyed before it is unplugged: so the
// one on record is picked to recover what it has kept, and else none.
func chooseSpare(functions []snaprpc.Function, want wanted, pendingToo, recovers bool) (snaprpc.Function, bool) {
	if f, ok := functionAt(functions, want.recorded); ok && recovers && want.recorded != "" && f.Hotplugged && f.CtrlID == "" {
		return f, true
	}
	return pick(functions, func(f snaprpc.Function) bool { return pendingToo && f.Hotplugged && f.CtrlID == "" && pending(f) })
}

func promises(reserved map[string]string) map[string]string {
	out := map[string]string{}
	for address, device := range reserved {
		out[service.Bare(address)] = device
	}
	return out
}

func pending(f snaprpc.Function) bool { return f.PCIBDF == snaprpc.PendingBDF || f.PCIBDF == "" }

// SparePrefix begins the name under which List tells of a hot-plugged function
// that no device has; its VUID follows.
const SparePrefix = "function:"

// spares returns the hot-plugged functions that no device has, nor is promised.
func spares(functions []snaprpc.Function, reserved map[string]string) []snaprpc.Function {
	promised := promises(reserved)
	var out []snaprpc.Function
	for _, f := range functions {
		_, taken := promised[service.Bare(f.PCIBDF)]
		if isNVMe(f) && f.Hotplugged && f.CtrlID == "" && (pending(f) || !taken) {
			out = append(out, f)
		}
	}
	return out
}
