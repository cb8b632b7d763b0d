package csi

import (
	"path/filepath"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestSecondStaging: a volume is staged on one path of a node: to unstage it on one closes it, and it would
// be taken from who uses the other.
func TestSecondStaging(t *testing.T) {
	const root = "/var/lib/kubelet"
	for name, tc := range map[string]struct {
		bed func(*testing.T) *bed
		cap *csispec.VolumeCapability
	}{
		"file system": {newBed, fsCap(snw, "")},
		"block":       {newBed, blockCap(snw)},
		"shared":      {sharedBed, fsCap(mnmw, "")},
		"directory":   {directoryBed, fsCap(snw, "")},
		"a directory that is a mount": {func(t *testing.T) *bed {
			b := directoryBed(t)
			b.m.devices["/dev/loop7"] = 8
			noError(t, b.m.Mount("/dev/loop7", b.h.dirs["v1"], "ext4", nil))
			return b
		}, fsCap(snw, "")},
	} {
		t.Run(name, func(t *testing.T) {
			b := tc.bed(t)
			first, second := b.staging, filepath.Join(b.dir, "second", "staging")
			b.o.Attachments = &attachments{h: b.h, has: map[string]provisioner.AttachSpec{}}
			b.o.Shares = func(map[string]string) bool { return true }
			noError(t, b.stageV(t, "v1", tc.cap))
			mounts := len(b.m.table)
			for range 2 {
				b.staging = second
				wantError(t, b.stageV(t, "v1", tc.cap), provisioner.ErrPrecondition, "staged on "+stagedOn(first, "v1", pathMode(tc.cap))+" already: unstage it there first")
				if !b.h.open["v1"] || len(b.h.log) != 0 || len(b.m.table) != mounts {
					t.Fatalf("the first one was touched: closed %v, mounts %v", b.h.log, b.m.table)
				}
				noError(t, b.unstageV(t))
				if !b.h.open["v1"] || len(b.h.log) != 0 || len(b.m.table) != mounts {
					t.Fatalf("the unstage of where it is not has touched it: closed %v, mounts %v", b.h.log, b.m.table)
				}
				b.staging = first
				noError(t, b.stageV(t, "v1", tc.cap)) // it still is staged there
			}
			noError(t, b.stageV2(t, tc.cap, filepath.Join(b.dir, "v2")))
			noError(t, b.unstageV(t))
			if b.h.open["v1"] {
				t.Error("it is still open")
			}
			// What pods are shown is no staging: it is staged while the last of them goes.
			for _, pod := range []string{root + "/pods/66ec/volumes/kubernetes.io~csi/pvc-1/mount", root + "/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/v1"} {
				noError(t, b.stageV(t, "v1", tc.cap))
				noError(t, b.m.Mount(stagedOn(b.staging, "v1", pathMode(tc.cap)), pod, "", []string{"bind"}))
				noError(t, b.m.Unmount(stagedOn(b.staging, "v1", pathMode(tc.cap))))
			}
			b.staging = second
			noError(t, b.stageV(t, "v1", tc.cap))
		})
	}
}

// TestSecondStagingOfADeadOne: what is of no use any more holds nothing up.
func TestSecondStagingOfADeadOne(t *testing.T) {
	for _, c := range []*csispec.VolumeCapability{fsCap(snw, ""), blockCap(snw)} {
		b := newBed(t)
		noError(t, b.stageV(t, "v1", c))
		b.m.dead["/dev/nvme0n1"] = true
		b.h.paths["v1"] = "/dev/nvme0n2"
		b.staging = filepath.Join(b.dir, "second")
		noError(t, b.stageV(t, "v1", c))
		b.staging = filepath.Join(b.dir, "third")
		delete(b.m.devices, "/dev/nvme0n2")
		noError(t, b.unstageV(t)) // whose device is gone, and cannot be compared
		if b.h.open["v1"] {
			t.Error("what is dead is not given back")
		}
	}
}

// TestMountOfTheSameName: a mount whose directory has the name of a raw volume is not its staging.
func TestMountOfTheSameName(t *testing.T) {
	b := newBed(t)
	b.m.devices["/dev/loop9"] = 9
	noError(t, b.m.Mount("/dev/loop9", filepath.Join(b.dir, "srv", "v1"), "ext4", nil))
	noError(t, b.stageV(t, "v1", blockCap(snw)))
	noError(t, b.unstageV(t))
	if b.h.open["v1"] {
		t.Error("it is not given back")
	}
}

func pathMode(c *csispec.VolumeCapability) provisioner.VolumeMode {
	if c.GetBlock() != nil {
		return provisioner.Block
	}
	return provisioner.Filesystem
}

// stageV2 stages the other volume.
func (b *bed) stageV2(t *testing.T, c *csispec.VolumeCapability, on string) error {
	t.Helper()
	first := b.staging
	defer func() { b.staging = first }()
	b.staging = on
	return b.stageV(t, "v2", c)
}
