package snapemulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/snapemulator/model"
	"github.com/moor-storage/moor/reference/snapemulator/wire"
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

// FileSystems is what a DataPath has that can also show directories: without it
// a virtio-fs device can be made and plugged in, but not mounted.
type FileSystems interface {
	// Export lets the host mount root through the socket at path, as package
	// fusepath's Mount does.
	Export(tag, root, path string) (FileSystem, error)
}

// FileSystem is a directory that the host can mount.
type FileSystem interface {
	// Fence makes all further I/O of every mount fail with EIO and returns when
	// the I/O in flight has ended. It cannot be undone.
	Fence()
	// Close ends the export, after Fence.
	Close() error
}

// fsDeviceMethods are the methods of virtio-fs devices themselves.
func fsDeviceMethods() map[string]handler {
	return map[string]handler{
		"virtio_fs_device_create":         method(fsDeviceCreate),
		"virtio_fs_doca_device_modify":    method(fsDeviceModify),
		"virtio_fs_device_start":          method(onDevice((*model.Model).StartFSDevice)),
		"virtio_fs_device_stop":           method(onDevice((*model.Model).StopFSDevice)),
		"virtio_fs_device_destroy":        method(onDevice((*model.Model).DestroyFSDevice)),
		"virtio_fs_doca_device_hotplug":   plugDevice((*model.Model).PlugFSDevice),
		"virtio_fs_doca_device_hotunplug": plugDevice((*model.Model).UnplugFSDevice),
		"virtio_fs_get_devices":           method(fsDeviceList),
	}
}

func fsDeviceCreate(_ context.Context, e *Emulator, p struct {
	Transport      string `json:"transport_name" snap:"must"`
	Name           string `json:"dev_name" snap:"must"`
	Tag            string `json:"tag" snap:"must"`
	FSDev          string `json:"fsdev" snap:"must"`
	Queues         int    `json:"num_request_queues"`
	QueueSize      int    `json:"queue_size"`
	DriverPlatform string `json:"driver_platform"`
},
) (any, error) {
	return true, e.model.CreateFSDevice(model.FSDeviceSpec{
		Transport: p.Transport, Name: p.Name, Tag: p.Tag, FSDev: p.FSDev, Queues: p.Queues, QueueSize: p.QueueSize,
	})
}

func fsDeviceModify(_ context.Context, e *Emulator, p struct {
	Name    string `json:"dev_name" snap:"must"`
	Manager string `json:"manager"`
	VUID    string `json:"vuid"`
},
) (any, error) {
	return true, e.model.ModifyFSDevice(p.Name, p.Manager, p.VUID)
}

// device names a virtio-fs device.
type device struct {
	Name string `json:"dev_name" snap:"must"`
}

func onDevice(act func(*model.Model, string) error) func(context.Context, *Emulator, device) (any, error) {
	return func(ctx context.Context, e *Emulator, p device) (any, error) {
		return e.changed(ctx, act(e.model, p.Name))
	}
}

// plugDevice makes a handler as plugMethod does.
func plugDevice(act func(*model.Model, string) (*model.Function, error)) handler {
	return func(ctx context.Context, e *Emulator, raw json.RawMessage) (any, error) {
		p, err := wire.Decode[struct {
			Name        string `json:"dev_name" snap:"must"`
			WaitForDone bool   `json:"wait_for_done"`
		}](raw)
		if err != nil {
			return nil, invalidParams(err)
		}
		return e.plug(ctx, p.WaitForDone, func() (*model.Function, error) { return act(e.model, p.Name) })
	}
}

func fsDeviceList(_ context.Context, e *Emulator, _ none) (any, error) {
	out := []any{}
	for _, d := range e.model.FS.Devices {
		state := "stopped"
		if d.Running {
			state = "running"
		}
		out = append(out, map[string]any{
			"name": d.Name, "transport_name": model.Transport, "state": state, "fsdev": d.FSDev.Name, "tag": d.Tag,
			"queue_size": d.QueueSize, "num_request_queues": d.Queues,
		})
	}
	return out, nil
}

// FSDir is where, below the root of device files, the host finds the sockets of
// the file systems that it can mount, one for each tag.
const FSDir = "virtiofs"

// applyFS lets the host mount what it is shown, and fences what it is not.
func (e *Emulator) applyFS(context.Context) error {
	wanted := map[*model.FSDevice]bool{}
	for _, d := range e.model.FS.Devices {
		wanted[d] = d.OnHost() && !e.linkDown
	}
	e.hideFS(wanted)
	path, can := e.opts.DataPath.(FileSystems)
	if !can || e.opts.DevRoot == "" {
		return nil
	}
	var failures error
	for d, want := range wanted {
		if !want || e.mounts[d] != nil {
			continue
		}
		dir := filepath.Join(e.opts.DevRoot, FSDir)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("show file system %s: %w", d.Tag, err)
		}
		fs, err := path.Export(d.Tag, d.FSDev.RootPath, filepath.Join(dir, d.Tag))
		if err != nil {
			failures = errors.Join(failures, fmt.Errorf("show file system %s: %w", d.Tag, err))
			continue
		}
		e.mounts[d] = fs
		failures = errors.Join(failures, e.tree.ShowShare(d))
		e.log.Info("file system shown", "device", d.Name, "tag", d.Tag, "function", d.Function.BDF)
	}
	return failures
}

// hideFS ends every file system that is not wanted.
func (e *Emulator) hideFS(wanted map[*model.FSDevice]bool) {
	for d, fs := range e.mounts {
		if wanted[d] {
			continue
		}
		fs.Fence()
		delete(e.mounts, d)
		if err := e.tree.HideShare(d.Function); err != nil {
			e.log.Error(err, "take a fenced file system out of the host's sysfs", "device", d.Name)
		}
		e.log.Info("file system fenced", "device", d.Name, "tag", d.Tag)
		if err := fs.Close(); err != nil {
			e.log.Error(err, "give back a fenced file system", "device", d.Name)
		}
	}
}
