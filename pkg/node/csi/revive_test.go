package csi

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

const theDevice = "/dev/nvme0n1"

// TestPublishStagesAnew: a pod is given no mount that is of no use: the volume is staged
// anew, once no other pod has it.
func TestPublishStagesAnew(t *testing.T) {
	for name, spoil := range map[string]func(b *bed){
		"the kernel has given the file system up": func(b *bed) { b.m.super[theDevice] = []string{"rw", "emergency_ro"} },
		"made it read-only, on older kernels":     func(b *bed) { b.m.super[theDevice] = []string{"ro"} },
		"the device is another one":               func(b *bed) { b.m.below[b.staging] = 99 },
		"nothing is mounted any more":             func(b *bed) { _ = b.m.Unmount(b.staging) },
	} {
		t.Run(name, func(t *testing.T) {
			b, c := newBed(t), fsCap(snw, "", "rw")
			noError(t, os.MkdirAll(b.staging, 0o750))
			noError(t, b.stageV(t, "v1", c))
			spoil(b)
			b.m.log = nil
			noError(t, b.publishV(t, b.target, c, false))
			mounts := 0
			for _, l := range b.m.log {
				if l == "mount nvme0n1 ext4 [rw]" {
					mounts++
				}
				if l == "unmount" {
					delete(b.m.below, b.staging)
				}
			}
			if mounts != 1 || len(b.m.table) != 2 || b.m.super[theDevice] != nil {
				t.Errorf("%v, mounts %v", b.m.log, b.m.table)
			}
		})
	}
	t.Run("block", func(t *testing.T) {
		b, c := newBed(t), blockCap(snw)
		noError(t, b.stageV(t, "v1", c))
		b.m.dead[theDevice] = true
		b.h.paths["v1"] = "/dev/nvme0n2" // it came back so
		noError(t, b.publishV(t, b.target, c, false))
		if mp, _, _ := b.mounts.at(b.target); mp.Device != "/dev/nvme0n2" {
			t.Errorf("mounts %v", b.m.table)
		}
	})
}

// TestPublishWaitsForOthers: the file system lives while another pod has it, so it cannot
// be mounted anew.
func TestPublishWaitsForOthers(t *testing.T) {
	b, c := newBed(t), fsCap(snw, "", "rw")
	old := filepath.Join(b.dir, "pods", "old", "mount")
	noError(t, b.stageV(t, "v1", c))
	noError(t, b.publishV(t, old, c, false))
	b.m.super[theDevice] = []string{"rw", "shutdown"}
	wantError(t, b.publishV(t, b.target, c, false), provisioner.ErrBusy, old+" still shows it: delete that pod")
	if len(b.m.table) != 2 {
		t.Errorf("mounts %v", b.m.table)
	}
	noError(t, b.unpublishV(t, old))
	noError(t, b.publishV(t, b.target, c, false))
}

// TestGivenUpIsNotShownAgain: what a process of another mount namespace holds comes back with
// each mount of the device; it is never taken for a new one, nor unmounted lazily.
func TestGivenUpIsNotShownAgain(t *testing.T) {
	b, c := newBed(t), fsCap(snw, "", "rw")
	noError(t, b.stageV(t, "v1", c))
	b.m.super[theDevice], b.m.held = []string{"rw", "emergency_ro"}, true
	for _, ask := range []func() error{
		func() error { return b.publishV(t, b.target, c, false) },
		func() error { return b.stageV(t, "v1", c) },
	} {
		noError(t, os.MkdirAll(b.staging, 0o750))
		wantError(t, ask(), provisioner.ErrBusy, "holds it until all that use it have ended")
		if len(b.m.table) != 0 {
			t.Errorf("mounts %v", b.m.table)
		}
	}
	b.m.held = false
	delete(b.m.super, theDevice)
	noError(t, b.publishV(t, b.target, c, false))
	b.m.super[theDevice], b.m.unmountErr = []string{"rw", "emergency_ro"}, fmt.Errorf("target is busy")
	wantError(t, b.unpublishV(t, b.target), provisioner.ErrBusy, "a process may still use it")
}

// hanging is a machine whose devices do not answer.
type hanging struct{ *machine }

func (hanging) Readable(path string) error { return fmt.Errorf("read %s: %w", path, hostdev.ErrHung) }

// TestHangingDeviceKeepsItsMounts: it may answer again.
func TestHangingDeviceKeepsItsMounts(t *testing.T) {
	b, c := newBed(t), fsCap(snw, "")
	noError(t, b.stageV(t, "v1", c))
	b.mounts.d, b.o.Devices = hanging{b.m}, hanging{b.m}
	noError(t, b.publishV(t, b.target, c, false))
	b.m.unmountErr = fmt.Errorf("target is busy")
	wantError(t, b.unpublishV(t, b.target), provisioner.ErrBusy, "a process may still use it")
	if len(b.m.table) != 2 {
		t.Errorf("mounts %v", b.m.table)
	}
	resp, err := b.NodeGetVolumeHealth(t.Context(), &csispec.NodeGetVolumeHealthRequest{VolumeId: "v1", VolumePublishPath: b.target})
	noError(t, err)
	if all := resp.GetVolumeHealth().GetHealthStatuses(); len(all) != 1 || all[0].GetReason() != reasonDeviceDead {
		t.Errorf("problems %v", all)
	}
}
