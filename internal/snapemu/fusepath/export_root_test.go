//go:build root

package fusepath_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/internal/snapemu"
	"github.com/moor-storage/moor/internal/snapemu/fusepath"
	"github.com/moor-storage/moor/internal/snaprpc"
)

// fsDPU is an emulator whose host has mounted the directory shared.
type fsDPU struct {
	*snaprpc.Client
	mnt    string
	socket string
	stop   func()
}

// startFS shows shared by virtio-fs, with the calls of DPF's node driver, and
// mounts it.
func startFS(t *testing.T, dir, name, shared string) fsDPU {
	t.Helper()
	root := filepath.Join(dir, name)
	path, err := fusepath.Open(name, filepath.Join(root, "fuse"), testr.New(t))
	if err != nil {
		t.Fatal(err)
	}
	e, err := snapemu.New(snapemu.Options{
		Name: name, Socket: filepath.Join(root, "snap.sock"), SysfsRoot: filepath.Join(root, "sys"),
		DevRoot: filepath.Join(root, "dev"), DataPath: path, Hotplug: snapemu.Hotplug{Slots: 31},
	})
	if err != nil {
		t.Fatal(err, path.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	d := fsDPU{
		Client: snaprpc.New(filepath.Join(root, "snap.sock"), 20*time.Second),
		mnt:    filepath.Join(root, "mnt"), socket: filepath.Join(root, "dev", snapemu.FSDir, "voltag"),
	}
	d.stop = func() {
		if cancel(); done != nil {
			if err := <-done; err != nil {
				t.Errorf("emulator %s ended: %v", name, err)
			}
			done = nil
		}
	}
	t.Cleanup(func() {
		_ = unix.Unmount(d.mnt, unix.MNT_DETACH)
		d.stop()
	})
	d.expose(t, shared)
	if err := errors.Join(os.Mkdir(d.mnt, 0o755), fusepath.Mount(d.socket, "voltag", d.mnt, 0)); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d fsDPU) call(t *testing.T, method string, params map[string]any, result any) {
	t.Helper()
	if err := d.Call(t.Context(), method, params, result); err != nil {
		t.Fatal(err)
	}
}

func (d fsDPU) expose(t *testing.T, shared string) {
	t.Helper()
	var vuid string
	d.call(t, "fsdev_aio_create", map[string]any{"name": "vol", "root_path": shared}, nil)
	d.call(t, "virtio_fs_transport_create", map[string]any{"transport_name": "DOCA"}, nil)
	d.call(t, "virtio_fs_doca_manager_create", map[string]any{"manager": "mlx5_0"}, nil)
	d.call(t, "virtio_fs_transport_start", map[string]any{"transport_name": "DOCA"}, nil)
	d.call(t, "virtio_fs_doca_function_create", map[string]any{"manager": "mlx5_0"}, &vuid)
	d.call(t, "virtio_fs_device_create", map[string]any{
		"transport_name": "DOCA", "dev_name": "dev_vol", "tag": "voltag", "fsdev": "vol",
		"num_request_queues": 8, "queue_size": 256, "driver_platform": "x86_64",
	}, nil)
	d.call(t, "virtio_fs_doca_device_modify", map[string]any{"dev_name": "dev_vol", "manager": "mlx5_0", "vuid": vuid}, nil)
	d.call(t, "virtio_fs_device_start", map[string]any{"dev_name": "dev_vol"}, nil)
	d.call(t, "virtio_fs_doca_device_hotplug", map[string]any{"dev_name": "dev_vol", "wait_for_done": true}, nil)
}

// TestVirtioFS: two hosts use the same files; when one is unplugged, all that it
// has mounted or open answers EIO, and the other goes on.
func TestVirtioFS(t *testing.T) {
	dir, shared := t.TempDir(), t.TempDir()
	a, b := startFS(t, dir, "dpu-a", shared), startFS(t, dir, "dpu-b", shared)
	f, err := os.OpenFile(filepath.Join(a.mnt, "text"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("from a"); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	wantText(t, filepath.Join(b.mnt, "text"), "from a")
	if err := errors.Join(os.Mkdir(filepath.Join(b.mnt, "d"), 0o755), os.WriteFile(filepath.Join(b.mnt, "d", "x"), []byte("from b"), 0o644)); err != nil {
		t.Fatal(err)
	}
	wantText(t, filepath.Join(a.mnt, "d", "x"), "from b")

	a.call(t, "virtio_fs_doca_device_hotunplug", map[string]any{"dev_name": "dev_vol", "wait_for_done": true}, nil)
	_, written := f.WriteString("late")
	_, listed := os.ReadDir(a.mnt)
	for what, err := range map[string]error{
		"write to an open file": errors.Join(written, f.Sync()),
		"make a file":           os.WriteFile(filepath.Join(a.mnt, "late"), nil, 0o644),
		"remove a file":         os.Remove(filepath.Join(a.mnt, "text")),
		"list":                  listed,
	} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s after the device is unplugged: %v", what, err)
		}
	}
	if err := fusepath.Mount(a.socket, "voltag", a.mnt, 0); err == nil {
		t.Error("mounted a device that is unplugged")
	}
	wantText(t, filepath.Join(b.mnt, "text"), "from a")
	if err := os.WriteFile(filepath.Join(b.mnt, "text"), []byte("b goes on"), 0o644); err != nil {
		t.Error(err)
	}
	wantText(t, filepath.Join(shared, "text"), "b goes on")
}

func wantText(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Fatalf("%s holds %q, %v; want %q", path, got, err, want)
	}
}
