package csi

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// directoryBed is a bed whose volumes v1 and v2 are directories of one disk.
func directoryBed(t *testing.T) *bed {
	t.Helper()
	b := newBed(t)
	b.m.devices[disk] = 7
	b.m.table = []Mount{{Root: "/"}}
	b.m.table[0].Device, b.m.table[0].Path, b.m.table[0].Type = disk, "/", "ext4"
	b.h.dirs = map[string]string{"v1": filepath.Join(b.dir, "d1"), "v2": filepath.Join(b.dir, "d2")}
	for _, dir := range b.h.dirs {
		noError(t, os.Mkdir(dir, 0o750))
	}
	return b
}

func TestLifeOfADirectory(t *testing.T) {
	b, c := directoryBed(t), fsCap(snw, "", "noatime")
	for range 2 { // every call twice: each is idempotent
		noError(t, b.stageV(t, "v1", c))
		noError(t, b.publishV(t, b.target, c, true))
	}
	b.h.open = map[string]bool{} // the platform forgot, as after a restart
	for range 2 {
		noError(t, b.stageV(t, "v1", c))
		noError(t, b.publishV(t, b.target, c, true))
	}
	for range 2 {
		noError(t, b.unpublishV(t, b.target))
		noError(t, b.unstageV(t))
	}
	want := []string{"mount d1 ext4 [bind noatime]", "mount vda1 ext4 [bind noatime ro]", "unmount", "unmount"}
	if d := cmp.Diff(want, b.m.log); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if d := cmp.Diff([]string{"close v1 v1", "close v1 "}, b.h.log); d != "" {
		t.Error(d)
	}
	if fi, err := os.Stat(b.h.dirs["v1"]); err != nil || !fi.IsDir() {
		t.Errorf("the platform's directory is gone: %v", err)
	}
}

func TestDirectoryRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*bed)
		cap     *csispec.VolumeCapability
		want    error
		words   string
	}{
		"raw block":     {nil, blockCap(snw), provisioner.ErrInvalid, "has no device"},
		"a type":        {nil, fsCap(snw, "xfs"), provisioner.ErrInvalid, `fsType "xfs" is asked for`},
		"the default":   {nil, fsCap(snw, "ext4"), provisioner.ErrInvalid, "leave the fsType out"},
		"its options":   {nil, fsCap(snw, "", "noatime", "data=journal"), provisioner.ErrInvalid, "mount option data=journal"},
		"gone":          {func(b *bed) { _ = os.Remove(b.h.dirs["v1"]) }, fsCap(snw, ""), provisioner.ErrPrecondition, "is gone, restore it"},
		"a file":        {func(b *bed) { b.h.dirs["v1"] = "node_test.go" }, fsCap(snw, ""), provisioner.ErrPrecondition, "no directory or no absolute path"},
		"relative":      {func(b *bed) { b.h.dirs["v1"] = "." }, fsCap(snw, ""), provisioner.ErrPrecondition, "no absolute path"},
		"another there": {func(b *bed) { _ = b.m.Mount(b.h.dirs["v2"], b.staging, "", []string{"bind"}) }, fsCap(snw, ""), provisioner.ErrPrecondition, "is mounted there already, not directory"},
	} {
		t.Run(name, func(t *testing.T) {
			b := directoryBed(t)
			if tc.prepare != nil {
				tc.prepare(b)
			}
			noError(t, os.MkdirAll(b.staging, 0o750))
			before := len(b.m.table)
			wantError(t, b.stageV(t, "v1", tc.cap), tc.want, tc.words)
			if len(b.m.table) != before {
				t.Errorf("mounts changed: %v", b.m.table)
			}
		})
	}
}

// Two directories are on one disk, so the disk tells nothing of which is which.
func TestDirectoriesOfOneDisk(t *testing.T) {
	b, c, second := directoryBed(t), fsCap(snsw, ""), ""
	second = filepath.Join(b.dir, "p2")
	noError(t, b.stageV(t, "v1", c))
	noError(t, b.m.Mount(b.h.dirs["v2"], second, "", []string{"bind"}))
	noError(t, os.MkdirAll(second, 0o750))
	wantError(t, b.publishV(t, second, c, false), provisioner.ErrExists, "is mounted there already")
	noError(t, b.publishV(t, b.target, c, false))
	noError(t, b.m.Unmount(second))
	wantError(t, b.publishV(t, second, c, false), provisioner.ErrInUse, b.target)
	noError(t, b.unpublishV(t, b.target))
	inside := Mount{Root: b.h.dirs["v1"] + "/data"}
	inside.Device, inside.Path = disk, "/pods/subpath"
	b.m.table = append(b.m.table, inside)
	wantError(t, b.publishV(t, second, c, false), provisioner.ErrInUse, "/pods/subpath")
}

// A directory may be the root of a file system that the platform has mounted: its
// own mount of it is no pod's.
func TestDirectoryThatIsAMount(t *testing.T) {
	b, c := directoryBed(t), fsCap(snsw, "")
	b.m.devices["/dev/loop7"] = 8
	noError(t, b.m.Mount("/dev/loop7", b.h.dirs["v1"], "ext4", nil))
	noError(t, b.stageV(t, "v1", c))
	noError(t, b.publishV(t, b.target, c, false))
	wantError(t, b.publishV(t, filepath.Join(b.dir, "p2"), c, false), provisioner.ErrInUse, b.target)
}

// remove makes the directory that is mounted on a path one that was removed.
func (b *bed) removed(t *testing.T, path string) {
	t.Helper()
	i := slices.IndexFunc(b.m.table, func(m Mount) bool { return m.Path == path })
	if i < 0 {
		t.Fatalf("nothing is mounted on %s", path)
	}
	b.m.table[i].Root += deleted
}

// A device whose file was made anew, also with the same number, is staged anew: what the mount shows is the
// file that was removed, which can be bound to no pod.
func TestRemovedDevice(t *testing.T) {
	for _, stages := range []int{0, 1} {
		b, c := newBed(t), blockCap(snw)
		noError(t, b.stageV(t, "v1", c))
		b.removed(t, blockFile(b.staging, "v1"))
		for range stages {
			noError(t, b.stageV(t, "v1", c))
		}
		noError(t, b.publishV(t, b.target, c, false))
		if mp, _, _ := b.mounts.at(b.target); strings.HasSuffix(mp.Root, deleted) {
			t.Errorf("the pod has %s", mp.Root)
		}
	}
}

func TestRemovedDirectory(t *testing.T) {
	b, c := directoryBed(t), fsCap(snw, "")
	noError(t, b.stageV(t, "v1", c))
	noError(t, b.publishV(t, b.target, c, false))
	b.removed(t, b.staging)
	b.removed(t, b.target)
	noError(t, os.Remove(b.h.dirs["v1"]))
	wantError(t, b.publishV(t, b.target, c, false), provisioner.ErrPrecondition, "the directory of the volume is gone, restore it")
	resp, err := b.NodeGetVolumeHealth(t.Context(), &csispec.NodeGetVolumeHealthRequest{VolumeId: "v1", StagingTargetPath: b.staging, VolumePublishPath: b.target})
	noError(t, err)
	var got []string
	for _, p := range resp.GetVolumeHealth().GetHealthStatuses() {
		got = append(got, p.GetReason())
	}
	if d := cmp.Diff([]string{reasonDirectoryGone, reasonMountDead}, got); d != "" {
		t.Error(d)
	}
	noError(t, os.Mkdir(b.h.dirs["v1"], 0o750)) // restored
	noError(t, b.publishV(t, b.target, c, false))
	for _, path := range []string{b.staging, b.target} {
		if mp, mounted, _ := b.mounts.at(path); !mounted || mp.Root != b.h.dirs["v1"] {
			t.Errorf("mounted on %s: %+v", path, mp)
		}
	}
}

// A directory that is there is not dead, however its disk is called.
func TestDirectoryOfADiskThatCannotBeRead(t *testing.T) {
	b, c := directoryBed(t), fsCap(snw, "")
	noError(t, b.stageV(t, "v1", c))
	noError(t, b.publishV(t, b.target, c, false))
	delete(b.m.devices, disk)
	resp, err := b.NodeGetVolumeHealth(t.Context(), &csispec.NodeGetVolumeHealthRequest{VolumeId: "v1", VolumePublishPath: b.target})
	if err != nil || len(resp.GetVolumeHealth().GetHealthStatuses()) != 0 {
		t.Errorf("health %v, %v", resp, err)
	}
	b.m.unmountErr = os.ErrPermission
	wantError(t, b.unpublishV(t, b.target), provisioner.ErrBusy, "a process may still use it")
}

// sized is a platform that gives a directory its size.
type sized struct{ asked int64 }

func (s *sized) Rescan(_ context.Context, _ string, atLeast int64) (int64, error) {
	s.asked = atLeast
	return atLeast + 1, nil
}

func TestDirectoryGrowsByItsPlatform(t *testing.T) {
	b, c, platform := directoryBed(t), fsCap(snw, ""), &sized{}
	b.o.Rescan = platform
	noError(t, b.stageV(t, "v1", c))
	noError(t, b.publishV(t, b.target, c, true))
	got, err := b.NodeExpandVolume(t.Context(), &csispec.NodeExpandVolumeRequest{
		VolumeId: "v1", VolumePath: b.target, CapacityRange: &csispec.CapacityRange{RequiredBytes: 64 << 20},
	})
	if err != nil || got.GetCapacityBytes() != 64<<20+1 || platform.asked != 64<<20 {
		t.Errorf("%v, %v, asked for %d", got, err, platform.asked)
	}
	if slices.ContainsFunc(b.m.log, func(l string) bool { return l[:4] == "grow" }) {
		t.Errorf("its file system, which is the platform's, was grown: %v", b.m.log)
	}
}
