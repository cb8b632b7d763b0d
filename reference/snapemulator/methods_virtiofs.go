package snapemulator

import (
	"context"
	"os"
	"syscall"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/snapemulator/model"
)

// virtioFSMethods are the methods around virtio-fs devices: directories of the
// DPU, transport, manager and functions.
func virtioFSMethods() map[string]handler {
	return map[string]handler{
		"fsdev_aio_create":                     method(fsdevCreate),
		"fsdev_aio_delete":                     method(named((*model.Model).DeleteFSDev)),
		"fsdev_get_fsdevs":                     method(fsdevList),
		"virtio_fs_get_transports":             method(transportList),
		"virtio_fs_transport_create":           method(onTransport((*model.Model).CreateTransport)),
		"virtio_fs_transport_destroy":          method(onTransport((*model.Model).DestroyTransport)),
		"virtio_fs_transport_start":            method(onTransport(setTransport(true))),
		"virtio_fs_transport_stop":             method(onTransport(setTransport(false))),
		"virtio_fs_doca_get_possible_managers": method(possibleManagers),
		"virtio_fs_doca_get_managers":          method(managers),
		"virtio_fs_doca_manager_create":        method(onManager((*model.Model).CreateManager)),
		"virtio_fs_doca_manager_destroy":       method(onManager((*model.Model).DestroyManager)),
		"virtio_fs_doca_get_functions":         method(fsFunctionList),
		"virtio_fs_doca_function_create":       method(fsFunctionCreate),
		"virtio_fs_doca_function_destroy":      method(fsFunctionDestroy),
	}
}

func fsdevCreate(_ context.Context, e *Emulator, p struct {
	Name      string `json:"name" snap:"must"`
	RootPath  string `json:"root_path" snap:"must"`
	XAttr     bool   `json:"enable_xattr"`
	Writeback bool   `json:"enable_writeback_cache"`
	MaxWrite  int    `json:"max_write"`
	SkipRW    bool   `json:"skip_rw"`
},
) (any, error) {
	fi, err := os.Stat(p.RootPath)
	if err == nil && !fi.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		err = e.model.CreateFSDev(p.Name, p.RootPath)
	}
	if err != nil { // SPDK answers every failure of this method so
		return nil, &snaprpc.Error{Code: snaprpc.CodeInternal, Message: "Failed to create fsdev " + p.Name + ": " + err.Error()}
	}
	return p.Name, nil
}

// name names an fsdev.
type name struct {
	Name string `json:"name" snap:"must"`
}

func named(act func(*model.Model, string) error) func(context.Context, *Emulator, name) (any, error) {
	return func(_ context.Context, e *Emulator, p name) (any, error) { return true, act(e.model, p.Name) }
}

func fsdevList(_ context.Context, e *Emulator, _ name0) (any, error) {
	out := []any{}
	for _, d := range e.model.FS.FSDevs {
		out = append(out, map[string]any{
			"name": d.Name, "module_name": "aio", "module_specific": map[string]string{"name": d.Name, "root_path": d.RootPath},
		})
	}
	return out, nil
}

// name0 is an optional name, which changes nothing.
type name0 struct {
	Name string `json:"name"`
}

func transportList(_ context.Context, e *Emulator, _ none) (any, error) {
	out := []any{}
	if e.model.FS.Transport != "" {
		out = append(out, map[string]any{"name": model.Transport, "state": e.model.FS.Transport, "managers": e.managerNames()})
	}
	return out, nil
}

func (e *Emulator) managerNames() []map[string]string {
	if !e.model.FS.Managed {
		return []map[string]string{}
	}
	return []map[string]string{{"name": model.Manager}}
}

// transport names the transport, manager a manager.
type (
	transport struct {
		Name string `json:"transport_name" snap:"must"`
	}
	manager struct {
		Name string `json:"manager" snap:"must"`
	}
)

func onTransport(act func(*model.Model, string) error) func(context.Context, *Emulator, transport) (any, error) {
	return func(_ context.Context, e *Emulator, p transport) (any, error) { return true, act(e.model, p.Name) }
}

func setTransport(started bool) func(*model.Model, string) error {
	return func(m *model.Model, name string) error { return m.SetTransport(name, started) }
}

func onManager(act func(*model.Model, string) error) func(context.Context, *Emulator, manager) (any, error) {
	return func(_ context.Context, e *Emulator, p manager) (any, error) { return true, act(e.model, p.Name) }
}

func possibleManagers(context.Context, *Emulator, none) (any, error) {
	return []map[string]string{{"name": model.Manager}}, nil
}

func managers(_ context.Context, e *Emulator, _ none) (any, error) { return e.managerNames(), nil }

// fsFunctionShape is a function as the service lists it; the blanks in a key are
// SNAP's.
type fsFunctionShape struct {
	HotPluggable string `json:"hot pluggable"`
	PCIAddress   string `json:"pci_address"`
	VUID         string `json:"vuid"`
	FunctionType string `json:"function_type"`
}

func fsFunctionList(_ context.Context, e *Emulator, _ none) (any, error) {
	out := []any{}
	if !e.model.FS.Managed {
		return out, nil
	}
	list := []fsFunctionShape{}
	for _, f := range e.model.Functions {
		if !f.VirtioFS {
			continue
		}
		s := fsFunctionShape{HotPluggable: "true", PCIAddress: f.BDF, VUID: f.VUID, FunctionType: "PF"}
		if f.Unlisted() {
			s.PCIAddress = snaprpc.PendingBDF
		}
		list = append(list, s)
	}
	return append(out, map[string]any{"manager": model.Manager, "Function List": list}), nil
}

func fsFunctionCreate(ctx context.Context, e *Emulator, p manager) (any, error) {
	f, err := e.model.CreateFSFunction(p.Name)
	if err != nil {
		return nil, err
	}
	_, err = e.replugged(ctx)
	return f.VUID, err
}

func fsFunctionDestroy(ctx context.Context, e *Emulator, p struct {
	Manager string `json:"manager" snap:"must"`
	VUID    string `json:"vuid" snap:"must"`
},
) (any, error) {
	if err := e.model.DestroyFSFunction(p.Manager, p.VUID); err != nil {
		return nil, err
	}
	return e.replugged(ctx)
}
