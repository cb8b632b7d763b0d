package csi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"k8s.io/mount-utils"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

func wantError(t *testing.T, err, want error, words string) {
	t.Helper()
	if !errors.Is(err, want) || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v, want %v with %q", err, want, words)
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLifeOfAFilesystem(t *testing.T) {
	b := newBed(t)
	c := fsCap(snw, "", "noatime")
	for range 2 { // every call twice: each is idempotent
		noError(t, b.stageV(t, "v1", c))
	}
	for range 2 {
		noError(t, b.publishV(t, b.target, c, false))
	}
	for range 2 {
		noError(t, b.unpublishV(t, b.target))
	}
	for range 2 {
		noError(t, b.unstageV(t))
	}
	want := []string{
		"format nvme0n1 ext4 false", "mount nvme0n1 ext4 [noatime]", "mount nvme0n1 ext4 [bind noatime]", "unmount", "unmount",
	}
	if d := cmp.Diff(want, b.m.log); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if d := cmp.Diff([]string{"close v1 nvme0n1", "close v1 "}, b.h.log); d != "" {
		t.Error(d)
	}
	if _, err := os.Lstat(b.target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target is still there: %v", err)
	}
	if _, err := os.Lstat(b.staging); err != nil {
		t.Errorf("the staging directory, the kubelet's, is gone: %v", err)
	}
}

func TestLifeOfABlockVolume(t *testing.T) {
	b := newBed(t)
	c := blockCap(snw)
	for range 2 {
		noError(t, b.stageV(t, "v1", c))
		noError(t, b.publishV(t, b.target, c, false))
	}
	if fi, err := os.Lstat(b.target); err != nil || !fi.Mode().IsRegular() {
		t.Errorf("target %v, %v, want a file", fi, err)
	}
	for range 2 {
		noError(t, b.unpublishV(t, b.target))
	}
	for range 2 {
		noError(t, b.unstageV(t))
	}
	want := []string{"mount nvme0n1  [bind]", "mount nvme0n1  [bind]", "unmount", "unmount"}
	if d := cmp.Diff(want, b.m.log); d != "" {
		t.Errorf("a block volume is bound, never formatted: -want +got:\n%s", d)
	}
	if left, _ := os.ReadDir(b.staging); len(left) != 0 {
		t.Errorf("left in staging: %v", left)
	}
}

func TestReadOnly(t *testing.T) {
	t.Run("mode of readers", func(t *testing.T) {
		b := newBed(t)
		b.m.formatted["/dev/nvme0n1"] = "xfs"
		c := fsCap(mnro, "xfs", "rw", "noatime")
		noError(t, b.stageV(t, "v1", c))
		noError(t, b.publishV(t, b.target, c, false))
		if d := cmp.Diff([]string{"mount nvme0n1 xfs [noatime nouuid ro]", "mount nvme0n1 xfs [bind noatime ro]"}, b.m.log); d != "" {
			t.Error(d)
		}
	})
	t.Run("one pod reads, one writes", func(t *testing.T) {
		b := newBed(t)
		c, second := fsCap(snw, ""), filepath.Join(b.dir, "p2")
		noError(t, b.stageV(t, "v1", c))
		noError(t, b.publishV(t, b.target, c, true))
		noError(t, b.publishV(t, second, c, false))
		noError(t, b.publishV(t, b.target, c, true))
		wantError(t, b.publishV(t, b.target, c, false), provisioner.ErrExists, "read-only true")
		wantError(t, b.publishV(t, second, c, true), provisioner.ErrExists, "read-only false")
	})
}

func TestStageRefuses(t *testing.T) {
	long := fsCap(snw, "")
	for name, tc := range map[string]struct {
		prepare func(*bed)
		id      string
		cap     *csispec.VolumeCapability
		want    error
		words   string
	}{
		"no id":             {nil, "", long, provisioner.ErrInvalid, "volume id is missing"},
		"id that is a path": {nil, "../v1", long, provisioner.ErrInvalid, "cannot be a file name"},
		"no capability":     {nil, "v1", nil, provisioner.ErrInvalid, "capability is missing"},
		"ntfs":              {nil, "v1", fsCap(snw, "ntfs"), provisioner.ErrInvalid, "[ext4 xfs]"},
		"relative path":     {func(b *bed) { b.staging = "staging" }, "v1", long, provisioner.ErrInvalid, "not absolute"},
		"no path":           {func(b *bed) { b.staging = "" }, "v1", long, provisioner.ErrInvalid, "staging target path is missing"},
		"unknown volume":    {nil, "v9", long, provisioner.ErrNotFound, "v9"},
		"device never came": {func(b *bed) { b.h.err = provisioner.ErrUnavailable }, "v1", long, provisioner.ErrUnavailable, "stage volume"},
		"used device": {
			func(b *bed) { b.m.ensureErr = fmt.Errorf("holds xfs, wanted ext4: %w", hostdev.ErrForeign) },
			"v1", long, provisioner.ErrPrecondition, "holds xfs",
		},
		"held device":     {func(b *bed) { b.m.ensureErr = hostdev.ErrBusy }, "v1", long, provisioner.ErrBusy, ""},
		"no medium":       {func(b *bed) { b.m.ensureErr = hostdev.ErrAbsent }, "v1", long, provisioner.ErrUnavailable, ""},
		"blank read-only": {func(b *bed) { b.m.ensureErr = hostdev.ErrBlankReadOnly }, "v1", fsCap(mnro, ""), provisioner.ErrPrecondition, ""},
		"damaged": {func(b *bed) {
			b.m.formatted["/dev/nvme0n1"] = "ext4"
			b.m.checkErr = hostdev.ErrForeign
		}, "v1", long, provisioner.ErrPrecondition, ""},
		"another device there": {
			func(b *bed) { _ = b.m.Mount("/dev/nvme0n2", b.staging, "ext4", nil) },
			"v1", long, provisioner.ErrPrecondition, "/dev/nvme0n2 is mounted there already",
		},
		"another device bound there": {
			func(b *bed) { _ = b.m.Mount("/dev/nvme0n2", blockFile(b.staging, "v1"), "", nil) },
			"v1", blockCap(snw), provisioner.ErrPrecondition, "/dev/nvme0n2 is mounted there already",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			if tc.prepare != nil {
				tc.prepare(b)
			}
			before := len(b.m.table)
			wantError(t, b.stageV(t, tc.id, tc.cap), tc.want, tc.words)
			if len(b.m.table) != before {
				t.Errorf("mounts changed: %v", b.m.table)
			}
		})
	}
}

func TestDeadMountIsReplaced(t *testing.T) {
	t.Run("the device is gone, its mount left", func(t *testing.T) {
		b := newBed(t)
		_ = b.m.Mount("/dev/nvme7n1", b.staging, "ext4", nil)
		noError(t, b.stageV(t, "v1", fsCap(snw, "")))
		if mp, _, _ := b.mounts.at(b.staging); mp.Device != "/dev/nvme0n1" || len(b.m.table) != 1 {
			t.Errorf("mounts %v", b.m.table)
		}
	})
	t.Run("the name went to a new device", func(t *testing.T) {
		b := newBed(t)
		_ = b.m.Mount("/dev/nvme0n1", b.staging, "ext4", nil)
		b.m.below[b.staging] = 99
		noError(t, b.stageV(t, "v1", fsCap(snw, "")))
		if got := b.m.log[len(b.m.log)-1]; got != "mount nvme0n1 ext4 []" || len(b.m.table) != 1 {
			t.Errorf("log %v", b.m.log)
		}
	})
	t.Run("block", func(t *testing.T) {
		b := newBed(t)
		_ = b.m.Mount("/dev/nvme7n1", blockFile(b.staging, "v1"), "", nil)
		noError(t, b.stageV(t, "v1", blockCap(snw)))
		if mp, _, _ := b.mounts.at(blockFile(b.staging, "v1")); mp.Device != "/dev/nvme0n1" || len(b.m.table) != 1 {
			t.Errorf("mounts %v", b.m.table)
		}
	})
}

func TestUnmountOfABusyOrDeadDevice(t *testing.T) {
	for name, tc := range map[string]struct {
		dead bool
		want error
		left int
	}{
		"busy and alive: wait":    {false, provisioner.ErrBusy, 2},
		"busy and dead: detached": {true, nil, 0},
	} {
		for _, c := range []*csispec.VolumeCapability{fsCap(snw, ""), blockCap(snw)} {
			t.Run(name, func(t *testing.T) {
				b := newBed(t)
				noError(t, b.stageV(t, "v1", c))
				noError(t, b.publishV(t, b.target, c, false))
				b.m.unmountErr = errors.New("target is busy")
				b.m.dead["/dev/nvme0n1"] = tc.dead
				for _, err := range []error{b.unpublishV(t, b.target), b.unstageV(t)} {
					if !errors.Is(err, tc.want) {
						t.Errorf("error %v, want %v", err, tc.want)
					}
				}
				if len(b.m.table) != tc.left {
					t.Errorf("%d mounts left, want %d: %v", len(b.m.table), tc.left, b.m.log)
				}
			})
		}
	}
}

func TestPublishRefuses(t *testing.T) {
	t.Run("not staged", func(t *testing.T) {
		b := newBed(t)
		wantError(t, b.publishV(t, b.target, fsCap(snw, ""), false), provisioner.ErrPrecondition, "not staged")
		wantError(t, b.publishV(t, b.target, blockCap(snw), false), provisioner.ErrPrecondition, "not staged")
	})
	t.Run("not staged, and the request cannot be staged with", func(t *testing.T) {
		b := newBed(t)
		noError(t, os.MkdirAll(b.staging, 0o750))
		b.h.err = fmt.Errorf("was it attached by this driver? %w", provisioner.ErrInvalid)
		err := b.publishV(t, b.target, fsCap(snw, ""), false)
		wantError(t, err, provisioner.ErrPrecondition, "it cannot be staged with what this request has: ")
		if errors.Is(err, provisioner.ErrInvalid) {
			t.Errorf("%v is an invalid request", err)
		}
	})
	t.Run("staged elsewhere", func(t *testing.T) {
		for _, c := range []*csispec.VolumeCapability{fsCap(snw, ""), blockCap(snw)} {
			b := newBed(t)
			noError(t, b.stageV(t, "v1", c))
			b.staging = filepath.Join(b.dir, "elsewhere")
			wantError(t, b.publishV(t, b.target, c, false), provisioner.ErrPrecondition, "not staged on "+b.staging)
		}
	})
	t.Run("another volume on the target", func(t *testing.T) {
		b := newBed(t)
		noError(t, b.stageV(t, "v1", fsCap(snw, "")))
		_ = b.m.Mount("/dev/nvme0n2", b.target, "ext4", nil)
		wantError(t, b.publishV(t, b.target, fsCap(snw, ""), false), provisioner.ErrExists, "/dev/nvme0n2")
	})
	t.Run("second pod of a ReadWriteOncePod volume", func(t *testing.T) {
		for _, c := range []*csispec.VolumeCapability{fsCap(snsw, ""), blockCap(snsw)} {
			b := newBed(t)
			noError(t, b.stageV(t, "v1", c))
			for range 2 {
				noError(t, b.publishV(t, b.target, c, false))
			}
			second := filepath.Join(b.dir, "p2")
			wantError(t, b.publishV(t, second, c, false), provisioner.ErrInUse, b.target)
			noError(t, b.unpublishV(t, b.target))
			noError(t, b.publishV(t, second, c, false))
		}
	})
	t.Run("no target", func(t *testing.T) {
		b := newBed(t)
		wantError(t, b.publishV(t, "", fsCap(snw, ""), false), provisioner.ErrInvalid, "target path is missing")
		wantError(t, b.unpublishV(t, ""), provisioner.ErrInvalid, "target path is missing")
	})
	t.Run("a mount that fails half way is taken back", func(t *testing.T) {
		b := newBed(t)
		noError(t, b.stageV(t, "v1", fsCap(snw, "")))
		b.m.mountErr = errors.New("remount read-only: permission denied")
		wantError(t, b.publishV(t, b.target, fsCap(snw, ""), true), b.m.mountErr, "bind")
		if _, mounted, _ := b.mounts.at(b.target); mounted {
			t.Error("the writable half of a read-only bind was left")
		}
	})
}

func TestUnpublishRemovesNothingThatIsNotOurs(t *testing.T) {
	b := newBed(t)
	noError(t, os.MkdirAll(b.target, 0o750))
	file := filepath.Join(b.target, "precious")
	noError(t, os.WriteFile(file, []byte("x"), 0o600))
	if err := b.unpublishV(t, b.target); err == nil {
		t.Error("a directory that is not empty passed as removed")
	}
	if _, err := os.Lstat(file); err != nil {
		t.Errorf("a file under the target was removed: %v", err)
	}
}

func TestUnstageClosesAfterRestart(t *testing.T) {
	b := newBed(t)
	noError(t, b.stageV(t, "v1", fsCap(snw, "")))
	b.h.open = map[string]bool{} // the platform forgot, as after a restart
	noError(t, b.unstageV(t))
	if len(b.m.table) != 0 || len(b.h.log) != 1 {
		t.Errorf("mounts %v, calls %v", b.m.table, b.h.log)
	}
}

func TestStackedMountsAreAllCleared(t *testing.T) {
	b := newBed(t)
	for range 3 {
		_ = b.m.Mount("/dev/nvme0n1", b.target, "ext4", nil)
	}
	noError(t, os.MkdirAll(b.target, 0o750))
	noError(t, b.unpublishV(t, b.target))
	if len(b.m.table) != 0 {
		t.Errorf("mounts %v", b.m.table)
	}
	for range maxStacked + 1 {
		_ = b.m.Mount("/dev/nvme0n1", b.target, "ext4", nil)
	}
	wantError(t, b.mounts.clear(b.target), provisioner.ErrBusy, "mounts lie on it")
}

func TestSymlinkedParent(t *testing.T) {
	b := newBed(t)
	target, link := filepath.Join(b.dir, "target"), filepath.Join(b.dir, "link")
	noError(t, os.Mkdir(target, 0o750))
	noError(t, os.Symlink(target, link))
	b.m.table = []Mount{{MountPoint: mount.MountPoint{Device: "/dev/nvme0n1", Path: filepath.Join(target, "s")}}}
	if _, mounted, err := b.mounts.at(filepath.Join(link, "s")); err != nil || !mounted {
		t.Errorf("a mount was not found through a link: %v", err)
	}
}

func TestNodeGetInfo(t *testing.T) {
	broken := errors.New("sysfs")
	for name, tc := range map[string]struct {
		flag      int64
		functions func() (int64, error)
		want      int64
	}{
		"flag":         {7, func() (int64, error) { return 16, nil }, 7},
		"functions":    {0, func() (int64, error) { return 16, nil }, 16},
		"no functions": {0, func() (int64, error) { return 0, nil }, 30},
		"not counted":  {0, nil, 30},
		"error":        {0, func() (int64, error) { return 0, broken }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Options{NodeID: "n1", MaxVolumes: tc.flag, Functions: tc.functions})
			got, err := s.NodeGetInfo(t.Context(), nil)
			if tc.want < 0 {
				if !errors.Is(err, broken) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil || got.NodeId != "n1" || got.MaxVolumesPerNode != tc.want {
				t.Errorf("%v, %v, want %d", got, err, tc.want)
			}
		})
	}
	caps, _ := New(Options{}).NodeGetCapabilities(t.Context(), nil)
	if len(caps.Capabilities) != 4 {
		t.Errorf("capabilities %v", caps)
	}
}
