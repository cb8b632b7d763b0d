//go:build root

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/internal/snaprpc"
)

// process is the emulator as a program of its own.
type process struct {
	*snaprpc.Client
	cmd  *exec.Cmd
	root string
}

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "snap-emulator")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

func run1(t *testing.T, binary, root string, more ...string) *process {
	t.Helper()
	socket := filepath.Join(root, "s")
	cmd := exec.Command(binary, "--name=killed", "--vfs=2", "--socket="+socket, "--sysfs-root="+root+"/sys", "--dev-root="+root+"/dev",
		"--fuse-dir="+root+"/fuse", "--medium-log-dir="+root+"/medium")
	cmd.Args = append(cmd.Args, more...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{Client: snaprpc.New(socket, 20*time.Second), cmd: cmd, root: root}
	t.Cleanup(func() { _ = p.end(syscall.SIGTERM) })
	within(t, "the service answers", func() bool { _, err := p.RPCGetMethods(context.Background()); return err == nil })
	return p
}

// end signals the process and waits for its end; a second call does nothing.
func (p *process) end(sig syscall.Signal) error {
	if p.cmd.ProcessState != nil {
		return nil
	}
	if err := p.cmd.Process.Signal(sig); err != nil {
		return err
	}
	return p.cmd.Wait()
}

func within(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick, deadline := time.NewTicker(5*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within 20 s", what)
		case <-tick.C:
		}
	}
}

func (p *process) expose(t *testing.T, file string) string {
	t.Helper()
	ctrl := p.prepare(t, file)
	if err := p.NvmeControllerResume(t.Context(), ctrl); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(p.root, "dev/nvme1n1")
}

// prepare makes all that shows the file, with a controller that is suspended.
func (p *process) prepare(t *testing.T, file string) (ctrl string) {
	t.Helper()
	ctx, nqn := t.Context(), "nqn.2022-10.io.nvda.nvme:dpf-vol"
	_, err := p.BdevAioCreate(ctx, snaprpc.AIOSpec{Name: "vol", Filename: file})
	err = errors.Join(err, p.NvmeSubsystemCreate(ctx, nqn), p.NvmeNamespaceCreate(ctx, snaprpc.NamespaceSpec{NQN: nqn, NSID: 1, BdevName: "vol"}))
	if err != nil {
		t.Fatal(err)
	}
	ctrl, err = p.NvmeControllerCreate(ctx, snaprpc.ControllerSpec{NQN: nqn, PCIBDF: "26:00.2", Suspended: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.NvmeControllerAttachNS(ctx, ctrl, 1); err != nil {
		t.Fatal(err)
	}
	return ctrl
}

// left counts the loop devices and mounts of the emulator that the kernel has.
func left(t *testing.T) (loops, mounts int) {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if raw, _ := os.ReadFile(f); strings.Contains(string(raw), "moor-snapemu.killed.") {
			loops++
		}
	}
	raw, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return loops, strings.Count(string(raw), "moor-snapemu.killed.")
}

func mountAt(t *testing.T, dev, at string) {
	t.Helper()
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(dev, at, "ext4", 0, ""); err != nil {
		t.Fatal(err)
	}
}

func TestKillAndRestart(t *testing.T) {
	binary := build(t)
	root, err := os.MkdirTemp("", "snapemu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	file := filepath.Join(root, "vol.img")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 32<<20)); err != nil {
		t.Fatal(err)
	}
	first := run1(t, binary, root)
	dev := first.expose(t, file)
	if out, err := exec.Command("mkfs.ext4", "-q", dev).CombinedOutput(); err != nil {
		t.Fatalf("mkfs: %v\n%s", err, out)
	}
	mnt := filepath.Join(root, "mnt")
	mountAt(t, dev, mnt)
	t.Cleanup(func() { unix.Unmount(mnt, unix.MNT_DETACH) })
	f, err := os.Create(filepath.Join(mnt, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("acknowledged"); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	_ = first.end(syscall.SIGKILL) // that it was killed
	if _, err := f.WriteString("lost"); err == nil && f.Sync() == nil {
		t.Error("a write was acknowledged without an emulator")
	}

	second := run1(t, binary, root)
	if bdevs, err := second.BdevGetBdevs(t.Context(), ""); err != nil || len(bdevs) != 0 {
		t.Errorf("bdevs after the restart: %v, %v", bdevs, err)
	}
	if _, err := os.Lstat(dev); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the device file outlived the emulator: %v", err)
	}
	if _, mounts := left(t); mounts != 1 {
		t.Errorf("%d mounts of the data path, want the living one", mounts)
	}
	f.Close()
	if err := unix.Unmount(mnt, 0); err != nil {
		t.Fatalf("unmount the dead file system: %v", err)
	}
	within(t, "the dead loop device is gone", func() bool { loops, _ := left(t); return loops == 0 })

	mountAt(t, second.expose(t, file), mnt)
	got, err := os.ReadFile(filepath.Join(mnt, "log"))
	if err != nil || !strings.HasPrefix(string(got), "acknowledged") {
		t.Errorf("after the restart the file says %q, %v", got, err)
	}
	if err := unix.Unmount(mnt, 0); err != nil {
		t.Fatal(err)
	}
	if err := second.end(syscall.SIGTERM); err != nil {
		t.Errorf("an orderly end: %v", err)
	}
	if loops, mounts := left(t); loops != 0 || mounts != 0 {
		t.Errorf("after an orderly end %d loop devices and %d mounts are left", loops, mounts)
	}
}
