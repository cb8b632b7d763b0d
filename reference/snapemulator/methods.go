package snapemulator

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"syscall"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/snapemulator/fault"
	"github.com/moor-storage/moor/reference/snapemulator/hosttree"
	"github.com/moor-storage/moor/reference/snapemulator/model"
	"github.com/moor-storage/moor/reference/snapemulator/wire"
)

// handler runs one method on its raw parameters.
type handler func(ctx context.Context, e *Emulator, params json.RawMessage) (any, error)

// none is the parameters of a method that takes none.
type none struct{}

// method makes a handler of run: strict parameters, and the emulator's lock
// held, since SPDK runs its methods one at a time.
func method[P any](run func(ctx context.Context, e *Emulator, p P) (any, error)) handler {
	return func(ctx context.Context, e *Emulator, raw json.RawMessage) (any, error) {
		p, err := wire.Decode[P](raw)
		if err != nil {
			return nil, &snaprpc.Error{Code: snaprpc.CodeInvalidParams, Message: "Invalid parameters: " + err.Error()}
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		return run(ctx, e, p)
	}
}

// methodTable returns every method there is; a new one needs a line here.
func methodTable(h Hotplug) map[string]handler {
	all := map[string]handler{}
	maps.Copy(all, nvmeMethods())
	maps.Copy(all, h.methods())
	if h.Slots > 0 && h.Family != FamilyLegacy {
		maps.Copy(all, virtioFSMethods())
		maps.Copy(all, fsDeviceMethods())
	}
	maps.Copy(all, bdevMethods())
	maps.Copy(all, targetMethods())
	maps.Copy(all, fabricMethods())
	maps.Copy(all, controlMethods())
	maps.Copy(all, map[string]handler{
		"rpc_get_methods":    method(getMethods),
		"spdk_get_version":   method(getVersion),
		"snap_log_level_set": method(setLogLevel),
	})
	return all
}

func getMethods(_ context.Context, e *Emulator, _ struct {
	Current bool `json:"current"`
	Aliases bool `json:"include_aliases"`
},
) (any, error) {
	names := slices.Sorted(maps.Keys(e.methods))
	return slices.DeleteFunc(names, fault.Control), nil
}

func getVersion(context.Context, *Emulator, none) (any, error) {
	return map[string]any{
		"version": "SPDK v23.01 (moor snap-emulator)",
		"fields":  map[string]any{"major": 23, "minor": 1, "patch": 0, "suffix": ""},
	}, nil
}

func setLogLevel(_ context.Context, _ *Emulator, p struct {
	Level int `json:"level" snap:"must"`
},
) (any, error) {
	if p.Level < 0 || p.Level > 5 {
		return nil, model.Refuse(syscall.EINVAL, "level %d is not in 0..5", p.Level)
	}
	return true, nil
}

func controlMethods() map[string]handler {
	return map[string]handler{
		"moor_inject":  method(inject),
		"moor_clear":   method(clearFaults),
		"moor_state":   method(state),
		"moor_link":    method(setLink),
		"moor_pending": method(setPending),
		"moor_host":    method(setHost),
	}
}

func inject(_ context.Context, e *Emulator, f fault.Fault) (any, error) {
	if f.When != "" && f.When != fault.Before && f.When != fault.After {
		return nil, model.Refuse(syscall.EINVAL, "when is %q, not before or after", f.When)
	}
	if _, ok := e.methods[f.Method]; !ok && f.Method != "*" {
		return nil, model.Refuse(syscall.EINVAL, "there is no method %q to strike", f.Method)
	}
	e.faults.Inject(f)
	return true, nil
}

func clearFaults(_ context.Context, e *Emulator, _ none) (any, error) {
	e.faults.Clear()
	return true, nil
}

// visibleNamespace is a namespace in the answer to moor_state.
type visibleNamespace struct {
	Bdev   string `json:"bdev"`
	PCIBDF string `json:"pci_bdf"`
	NSID   uint64 `json:"nsid"`
	Device string `json:"device"`
	Paused bool   `json:"paused"`
}

func state(_ context.Context, e *Emulator, _ none) (any, error) {
	waiting, calls := e.faults.Snapshot()
	visible := []visibleNamespace{}
	for _, s := range e.shown {
		visible = append(visible, visibleNamespace{
			Bdev: s.Namespace.Bdev.Name, PCIBDF: s.Function.BDF, NSID: s.Namespace.NSID,
			Device: hosttree.NodeName(s.Function, s.Namespace.NSID), Paused: s.Paused,
		})
	}
	return map[string]any{"name": e.opts.Name, "link_up": !e.linkDown, "faults": waiting, "calls": calls, "visible": visible}, nil
}

// setLink cuts the PCIe link to the host, or joins it again: cut, the host's
// I/O fails and it sees no namespace, while SNAP keeps its objects. Joined
// again, the host enumerates anew what is plugged in.
func setLink(ctx context.Context, e *Emulator, p struct {
	Up bool `json:"up" snap:"must"`
},
) (any, error) {
	if e.linkDown = !p.Up; e.linkDown {
		e.model.LoseHost()
	}
	return e.replugged(ctx)
}

func setPending(_ context.Context, e *Emulator, p struct {
	VUID    string `json:"vuid" snap:"must"`
	Pending bool   `json:"pending" snap:"must"`
},
) (any, error) {
	return true, e.model.SetPending(p.VUID, p.Pending)
}
