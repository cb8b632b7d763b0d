//go:build root

package fusepath_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/fusepath"
)

// fsDPU is an emulator whose host has mounted the directory shared.
type fsDPU struct {
	*snaprpc.Client
	mnt    string
	socket string
	sysfs  string
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
	e, err := snapemulator.New(snapemulator.Options{
		Name: name, Socket: filepath.Join(root, "snap.sock"), SysfsRoot: filepath.Join(root, "sys"),
		DevRoot: filepath.Join(root, "dev"), DataPath: path, Hotplug: snapemulator.Hotplug{Slots: 31},
	})
	if err != nil {
		t.Fatal(err, path.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	d := fsDPU{
		Client: snaprpc.New(filepath.Join(root, "snap.sock"), 20*time.Second),
		sysfs:  filepath.Join(root, "sys"),
		mnt:    filepath.Join(root, "mnt"), socket: filepath.Join(root, "dev", snapemulator.FSDir, "voltag"),
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

// TestRootHostIsTold: the host's sysfs names a file system, and where it is, as
// long as it can be mounted.
func TestRootHostIsTold(t *testing.T) {
	dir := t.TempDir()
	shared := filepath.Join(dir, "shared")
	if err := os.Mkdir(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	d := startFS(t, dir, "dpu", shared)
	finder := &hostdev.Finder{Roots: hostdev.Roots{Sysfs: d.sysfs}}
	told, err := finder.Shares()
	if err != nil || len(told) != 1 || told[0].Tag != "voltag" || finder.SharedBy(hostdev.Identity{Address: told[0].Address}) != nil {
		t.Fatalf("the host is told of %+v, %v", told, err)
	}
	if err := unix.Unmount(d.mnt, 0); err != nil {
		t.Fatal(err)
	}
	d.call(t, "virtio_fs_doca_device_hotunplug", map[string]any{"dev_name": "dev_vol", "wait_for_done": true}, nil)
	if told, err := finder.Shares(); err != nil || len(told) != 0 {
		t.Fatalf("the host is still told of %+v, %v", told, err)
	}
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

// host is a shell that stands for the host: another process, since one that uses
// a file system which it serves itself can wait for itself.
type host struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

func newHost(t *testing.T, d fsDPU) host {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh")
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	h := host{t: t, in: in, out: bufio.NewReader(out)}
	h.run("mnt=" + d.mnt)
	return h
}

// try runs a script and returns what it printed and whether it succeeded.
func (h host) try(script string) (text string, ok bool) {
	h.t.Helper()
	if _, err := fmt.Fprintf(h.in, "{ %s\n} 2>&1; echo \"=$?\"\n", script); err != nil {
		h.t.Fatal(err)
	}
	for {
		line, err := h.out.ReadString('\n')
		if err != nil {
			h.t.Fatalf("%s: %v", script, err)
		}
		if code, end := strings.CutPrefix(line, "="); end {
			return text, code == "0\n"
		}
		text += line
	}
}

func (h host) run(script string) string {
	h.t.Helper()
	text, ok := h.try(script)
	if !ok {
		h.t.Fatalf("%s: %s", script, text)
	}
	return text
}

// TestVirtioFS: two hosts use the same files; when one is unplugged, all that it
// has mounted or open answers EIO, and the other goes on.
func TestVirtioFS(t *testing.T) {
	dir, shared := t.TempDir(), t.TempDir()
	dpuA, dpuB := startFS(t, dir, "dpu-a", shared), startFS(t, dir, "dpu-b", shared)
	a, b := newHost(t, dpuA), newHost(t, dpuB)
	a.run("exec 3<>$mnt/text && echo from a >&3")
	if got := b.run("cat $mnt/text && mkdir $mnt/d && echo from b > $mnt/d/x"); got != "from a\n" {
		t.Fatalf("b reads %q", got)
	}
	if got := a.run("cat $mnt/d/x"); got != "from b\n" {
		t.Fatalf("a reads %q", got)
	}
	dpuA.call(t, "virtio_fs_doca_device_hotunplug", map[string]any{"dev_name": "dev_vol", "wait_for_done": true}, nil)
	for _, script := range []string{"echo late >&3", "echo late > $mnt/late", "rm $mnt/text", "ls $mnt", "cat $mnt/text"} {
		if text, ok := a.try(script); ok || !strings.Contains(strings.ToLower(text), "i/o error") && !strings.Contains(text, "Input/output error") {
			t.Errorf("%s, after the device is unplugged: %q, %v", script, text, ok)
		}
	}
	if err := fusepath.Mount(dpuA.socket, "voltag", dpuA.mnt, 0); err == nil {
		t.Error("mounted a device that is unplugged")
	}
	if got := b.run("cat $mnt/text && echo b goes on > $mnt/text && cat $mnt/text"); got != "from a\nb goes on\n" {
		t.Errorf("b reads %q", got)
	}
	a.try("exec 3>&-")
}
