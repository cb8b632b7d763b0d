package snapemulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/moor-storage/moor/reference/snapemulator/model"
)

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
		p, err := decodeParams[struct {
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
		failures = errors.Join(failures, e.tree.showShare(d))
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
		if err := e.tree.hideShare(d.Function); err != nil {
			e.log.Error(err, "take a fenced file system out of the host's sysfs", "device", d.Name)
		}
		e.log.Info("file system fenced", "device", d.Name, "tag", d.Tag)
		if err := fs.Close(); err != nil {
			e.log.Error(err, "give back a fenced file system", "device", d.Name)
		}
	}
}
