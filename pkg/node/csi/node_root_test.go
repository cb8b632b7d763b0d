//go:build root

package csi

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/test/kit/needs"
)

// realBed is a node service over the kernel: volume v1 is a loop device, seen
// through a link, as a device root other than /dev shows it.
type realBed struct {
	*bed
	backing, loop string
}

func newRealBed(t *testing.T) *realBed {
	t.Helper()
	b := newBed(t)
	r := &realBed{bed: b, backing: filepath.Join(b.dir, "backing")}
	f, err := os.Create(r.backing)
	noError(t, err)
	noError(t, errors.Join(f.Truncate(320<<20), f.Close()))
	out, err := exec.Command("losetup", "--find", "--show", r.backing).Output()
	noError(t, err)
	r.loop = strings.TrimSpace(string(out))
	link := filepath.Join(b.dir, "nvme0n1")
	noError(t, os.Symlink(r.loop, link))
	t.Cleanup(func() {
		list, _ := NewMounter().List()
		for _, mp := range list {
			if strings.HasPrefix(mp.Path, b.dir) {
				_ = unix.Unmount(mp.Path, unix.MNT_DETACH)
			}
		}
		_ = exec.Command("losetup", "-d", r.loop).Run()
	})
	b.h.paths["v1"] = link
	b.Server = New(Options{
		NodeID: "n1", Host: b.h, Mounter: NewMounter(), Devices: NewHostDevices(),
		Formatter: &hostdev.Formatter{Runner: hostdev.Commands{}},
	})
	return r
}

func (b *bed) mounted(t *testing.T) int {
	t.Helper()
	list, err := NewMounter().List()
	noError(t, err)
	n := 0
	for _, mp := range list {
		if strings.HasPrefix(mp.Path, b.dir) {
			n++
		}
	}
	return n
}

func TestRootFilesystem(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			needs.Program(t, "mkfs."+fs)
			b, c := newRealBed(t), fsCap(snw, fs, "noatime", "nosuid")
			for range 2 {
				noError(t, b.stageV(t, "v1", c))
				noError(t, b.publishV(t, b.target, c, false))
			}
			if n := b.mounted(t); n != 2 {
				t.Errorf("%d mounts, want 2", n)
			}
			if mp, _, err := b.mounts.at(b.target); err != nil || !slices.Contains(mp.Opts, "nosuid") || !slices.Contains(mp.Opts, "noatime") {
				t.Errorf("published with the options %v, %v: those of the volume are missing", mp.Opts, err)
			}
			file := filepath.Join(b.target, "f")
			noError(t, os.WriteFile(file, []byte("kept"), 0o600))
			second := filepath.Join(b.dir, "p2")
			for range 2 {
				noError(t, b.publishV(t, second, c, true))
			}
			if err := os.WriteFile(filepath.Join(second, "f"), nil, 0o600); !errors.Is(err, unix.EROFS) {
				t.Errorf("write through a read-only publish: %v, want EROFS", err)
			}
			for range 2 {
				noError(t, b.unpublishV(t, second))
				noError(t, b.unpublishV(t, b.target))
				noError(t, b.unstageV(t))
			}
			if n := b.mounted(t); n != 0 {
				t.Errorf("%d mounts left", n)
			}
			ro := fsCap(mnro, fs)
			noError(t, b.stageV(t, "v1", ro))
			noError(t, b.publishV(t, b.target, ro, false))
			noError(t, b.publishV(t, b.target, ro, false))
			if got, err := os.ReadFile(file); err != nil || string(got) != "kept" {
				t.Errorf("read back %q, %v", got, err)
			}
			if err := os.WriteFile(file, nil, 0o600); !errors.Is(err, unix.EROFS) {
				t.Errorf("write to a read-only volume: %v, want EROFS", err)
			}
			noError(t, b.unpublishV(t, b.target))
			noError(t, b.unstageV(t))
		})
	}
}

// A clone and the volume it was made from may be used on one host at once.
func TestRootCopyBesideItsSource(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			needs.Program(t, "mkfs."+fs)
			source, clone, c := newRealBed(t), newRealBed(t), fsCap(snw, fs)
			noError(t, source.stageV(t, "v1", c))
			noError(t, os.WriteFile(filepath.Join(source.staging, "f"), []byte("kept"), 0o600))
			noError(t, source.unstageV(t))
			noError(t, exec.Command("cp", "--sparse=always", source.backing, clone.backing).Run())
			for _, b := range []*realBed{source, clone} {
				noError(t, b.stageV(t, "v1", c))
				if got, err := os.ReadFile(filepath.Join(b.staging, "f")); err != nil || string(got) != "kept" {
					t.Errorf("read back %q, %v", got, err)
				}
			}
			noError(t, source.unstageV(t))
			noError(t, clone.unstageV(t))
		})
	}
}

func TestRootBlock(t *testing.T) {
	b, c := newRealBed(t), blockCap(snw)
	for range 2 {
		noError(t, b.stageV(t, "v1", c))
		noError(t, b.publishV(t, b.target, c, false))
	}
	if n := b.mounted(t); n != 2 {
		t.Errorf("%d mounts, want 2", n)
	}
	want, err := hostdev.DeviceNumber(b.loop)
	noError(t, err)
	if got, err := hostdev.DeviceNumber(b.target); err != nil || got != want {
		t.Errorf("target is device %d (%v), want %d", got, err, want)
	}
	one := blockCap(snsw)
	wantError(t, b.publishV(t, filepath.Join(b.dir, "p2"), one, false), provisioner.ErrInUse, b.target)
	for range 2 {
		noError(t, b.unpublishV(t, b.target))
		noError(t, b.unstageV(t))
	}
	if n := b.mounted(t); n != 0 {
		t.Errorf("%d mounts left", n)
	}
}

func TestRootUsedDevice(t *testing.T) {
	b := newRealBed(t)
	noError(t, exec.Command("mkswap", b.loop).Run())
	wantError(t, b.stageV(t, "v1", fsCap(snw, "")), provisioner.ErrPrecondition, "holds swap, wanted ext4")
	wantError(t, b.stageV(t, "v1", fsCap(mnro, "")), provisioner.ErrPrecondition, "holds swap")
	if n := b.mounted(t); n != 0 {
		t.Errorf("%d mounts left", n)
	}
}

func TestRootDeadDevice(t *testing.T) {
	for name, c := range map[string]*csispec.VolumeCapability{"filesystem": fsCap(snw, ""), "block": blockCap(snw)} {
		t.Run(name, func(t *testing.T) {
			b := newRealBed(t)
			noError(t, b.stageV(t, "v1", c))
			noError(t, b.publishV(t, b.target, c, false))
			if name == "filesystem" {
				hold, err := os.Create(filepath.Join(b.target, "held"))
				noError(t, err)
				defer hold.Close()
				wantError(t, b.unpublishV(t, b.target), provisioner.ErrBusy, "a process may still use it")
			}
			// Reads and writes of a loop device past the end of its file fail.
			noError(t, os.Truncate(b.backing, 0))
			noError(t, b.unpublishV(t, b.target))
			noError(t, b.unstageV(t))
			if n := b.mounted(t); n != 0 {
				t.Errorf("%d mounts left", n)
			}
		})
	}
}

func TestRootStagingHeldByAnotherDevice(t *testing.T) {
	b := newRealBed(t)
	noError(t, os.MkdirAll(b.staging, 0o750))
	noError(t, unix.Mount("tmpfs", b.staging, "tmpfs", 0, ""))
	wantError(t, b.stageV(t, "v1", fsCap(snw, "")), provisioner.ErrPrecondition, "tmpfs is mounted there already")
	noError(t, unix.Unmount(b.staging, 0))
	noError(t, b.stageV(t, "v1", fsCap(snw, "")))
	noError(t, b.unstageV(t))
}

// TestRootGivenUp: a file system that the kernel has shut down is staged anew, on the same
// device, for the next pod, and not before the last one has gone.
func TestRootGivenUp(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			b, c := newRealBed(t), fsCap(snw, fsType)
			noError(t, b.stageV(t, "v1", c))
			noError(t, b.publishV(t, b.target, c, false))
			noError(t, os.WriteFile(filepath.Join(b.target, "f"), []byte("kept"), 0o600))
			unix.Sync()
			shutDown(t, b.target)
			next := filepath.Join(b.dir, "pods", "next", "mount")
			wantError(t, b.publishV(t, next, c, false), provisioner.ErrBusy, b.target+" still shows it")
			noError(t, b.unpublishV(t, b.target))
			noError(t, b.publishV(t, next, c, false))
			got, err := os.ReadFile(filepath.Join(next, "f"))
			if err != nil || string(got) != "kept" {
				t.Errorf("the volume holds %q, %v", got, err)
			}
			noError(t, os.WriteFile(filepath.Join(next, "g"), []byte("new"), 0o600))
			noError(t, b.unpublishV(t, next))
			noError(t, b.unstageV(t))
		})
	}
}

// shutDown has the kernel give a file system up, without a word to its device (ext4 and xfs,
// "going down" without a flush of the log).
func shutDown(t *testing.T, path string) {
	t.Helper()
	const goingDown, noFlush = 0x8004587d, uint32(2)
	dir, err := os.Open(path)
	noError(t, err)
	defer dir.Close()
	noError(t, unix.IoctlSetPointerInt(int(dir.Fd()), goingDown, int(noFlush)))
}
