//go:build root

package csi

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// newRealDirectory is a node service over the kernel whose volume v1 is a directory:
// the root of a tmpfs, or a directory in it.
func newRealDirectory(t *testing.T, root bool) *bed {
	t.Helper()
	b := newBed(t)
	top := filepath.Join(b.dir, "storage")
	noError(t, os.Mkdir(top, 0o750))
	other := filepath.Join(b.dir, "other") // is listed as the same device, and is not
	noError(t, os.Mkdir(other, 0o750))
	for _, path := range []string{top, other} {
		noError(t, unix.Mount("tmpfs", path, "tmpfs", 0, "size=1m"))
	}
	t.Cleanup(func() {
		list, _ := NewMounter().List()
		for _, mp := range slices.Backward(list) {
			if strings.HasPrefix(mp.Path, b.dir) {
				_ = unix.Unmount(mp.Path, unix.MNT_DETACH)
			}
		}
	})
	volume := top
	if !root {
		volume = filepath.Join(top, "v1")
		noError(t, os.Mkdir(volume, 0o777))
	}
	b.h.dirs = map[string]string{"v1": volume}
	b.Server = New(Options{
		NodeID: "n1", Host: b.h, Mounter: NewMounter(), Devices: NewHostDevices(),
		Formatter: &hostdev.Formatter{Runner: hostdev.Commands{}},
	})
	return b
}

func TestRootDirectory(t *testing.T) {
	for name, root := range map[string]bool{"in a file system": false, "of a whole file system": true} {
		t.Run(name, func(t *testing.T) {
			b, c := newRealDirectory(t, root), fsCap(snsw, "", "nosuid")
			second := filepath.Join(b.dir, "p2")
			for range 2 {
				noError(t, b.stageV(t, "v1", c))
				noError(t, b.publishV(t, b.target, c, false))
				noError(t, b.publishV(t, second, fsCap(snw, "", "nosuid"), true))
			}
			if n := b.mounted(t); n != 5 { // two of tmpfs, staging, and two targets
				t.Errorf("%d mounts, want 5", n)
			}
			noError(t, os.WriteFile(filepath.Join(b.target, "f"), []byte("kept"), 0o600))
			if got, err := os.ReadFile(filepath.Join(b.h.dirs["v1"], "f")); err != nil || string(got) != "kept" {
				t.Errorf("the volume holds %q, %v", got, err)
			}
			if err := os.WriteFile(filepath.Join(second, "f"), nil, 0o600); !errors.Is(err, unix.EROFS) {
				t.Errorf("write through a read-only publish: %v, want EROFS", err)
			}
			if mp, _, _ := b.mounts.at(b.target); !slices.Contains(mp.Opts, "nosuid") {
				t.Errorf("published with %v, without the volume's options", mp.Opts)
			}
			usage, err := b.NodeGetVolumeStats(t.Context(), &csispec.NodeGetVolumeStatsRequest{VolumeId: "v1", VolumePath: b.target})
			if err != nil || len(usage.GetUsage()) != 2 || usage.GetUsage()[0].GetTotal() != 1<<20 || usage.GetUsage()[0].GetUsed() == 0 {
				t.Errorf("usage %v, %v, want that of 1 MiB", usage, err)
			}
			wantError(t, b.publishV(t, filepath.Join(b.dir, "p3"), c, false), provisioner.ErrInUse, "is shown on "+b.target)
			for range 2 {
				noError(t, b.unpublishV(t, b.target))
				noError(t, b.unpublishV(t, second))
				noError(t, b.unstageV(t))
			}
			if n := b.mounted(t); n != 2 {
				t.Errorf("%d mounts left, want those of tmpfs alone", n)
			}
			if got, err := os.ReadFile(filepath.Join(b.h.dirs["v1"], "f")); err != nil || string(got) != "kept" {
				t.Errorf("after unstage the volume holds %q, %v", got, err)
			}
		})
	}
}

// Every way to be read-only holds for the pod, though the platform may write.
func TestRootDirectoryReadOnly(t *testing.T) {
	for name, c := range map[string]*csispec.VolumeCapability{"mode of readers": fsCap(mnro, ""), "mount option": fsCap(snw, "", "ro")} {
		t.Run(name, func(t *testing.T) {
			b := newRealDirectory(t, false)
			for range 2 {
				noError(t, b.stageV(t, "v1", c))
				noError(t, b.publishV(t, b.target, c, false))
			}
			for _, path := range []string{b.staging, b.target} {
				if err := os.WriteFile(filepath.Join(path, "f"), nil, 0o600); !errors.Is(err, unix.EROFS) {
					t.Errorf("write to %s: %v, want EROFS", path, err)
				}
			}
			noError(t, os.WriteFile(filepath.Join(b.h.dirs["v1"], "f"), nil, 0o600))
			noError(t, b.unpublishV(t, b.target))
			noError(t, b.unstageV(t))
		})
	}
}

// A directory that is removed below its mounts is told of, and once it is there
// again publish mends the mounts.
func TestRootRemovedDirectory(t *testing.T) {
	b, c := newRealDirectory(t, false), fsCap(snw, "")
	noError(t, b.stageV(t, "v1", c))
	noError(t, b.publishV(t, b.target, c, false))
	noError(t, os.Remove(b.h.dirs["v1"]))
	resp, err := b.NodeGetVolumeHealth(t.Context(), &csispec.NodeGetVolumeHealthRequest{VolumeId: "v1", StagingTargetPath: b.staging})
	if got := resp.GetVolumeHealth().GetHealthStatuses(); err != nil || len(got) != 2 || got[0].GetReason() != reasonDirectoryGone || got[1].GetReason() != reasonMountDead {
		t.Errorf("health %v, %v", got, err)
	}
	wantError(t, b.publishV(t, b.target, c, false), provisioner.ErrPrecondition, "the directory of the volume is gone, restore it")
	noError(t, os.Mkdir(b.h.dirs["v1"], 0o777))
	noError(t, b.publishV(t, b.target, c, false))
	noError(t, os.WriteFile(filepath.Join(b.target, "f"), []byte("new"), 0o600))
	if got, err := os.ReadFile(filepath.Join(b.h.dirs["v1"], "f")); err != nil || string(got) != "new" {
		t.Errorf("the volume holds %q, %v", got, err)
	}
	noError(t, b.unpublishV(t, b.target))
	noError(t, b.unstageV(t))
}
