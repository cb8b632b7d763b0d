package csi

import (
	"context"
	"errors"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
)

const mnmw = csispec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER

// sharedBed is a bed whose volume v1 is a file system with the tag "tag".
func sharedBed(t *testing.T) *bed {
	t.Helper()
	b := newBed(t)
	b.m.devices["tag"] = 7
	b.h.tags = map[string]string{"v1": "tag"}
	return b
}

func TestLifeOfASharedFilesystem(t *testing.T) {
	b := sharedBed(t)
	c, other := fsCap(mnmw, "", "noatime"), b.dir+"/p2"
	for range 2 { // every call twice: each is idempotent
		noError(t, b.stageV(t, "v1", c))
	}
	for range 2 {
		noError(t, b.publishV(t, b.target, c, false))
		noError(t, b.publishV(t, other, c, true))
	}
	stats, err := b.NodeGetVolumeStats(t.Context(), &csispec.NodeGetVolumeStatsRequest{VolumeId: "v1", VolumePath: b.target})
	if err != nil || len(stats.GetUsage()) == 0 {
		t.Errorf("usage %v, %v", stats, err)
	}
	health, err := b.NodeGetVolumeHealth(t.Context(), &csispec.NodeGetVolumeHealthRequest{VolumeId: "v1"})
	if err != nil || len(health.GetVolumeHealth().GetHealthStatuses()) != 0 {
		t.Errorf("health %v, %v", health, err)
	}
	for range 2 {
		noError(t, b.unpublishV(t, b.target))
		noError(t, b.unpublishV(t, other))
	}
	for range 2 {
		noError(t, b.unstageV(t))
	}
	want := []string{"mount tag virtiofs [noatime]", "mount tag virtiofs [bind noatime]", "mount tag virtiofs [bind noatime ro]", "unmount", "unmount", "unmount"}
	if d := cmp.Diff(want, b.m.log); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestSharedReadOnlyAndType(t *testing.T) {
	b := sharedBed(t)
	b.o.SharedType = "fuse.helper"
	noError(t, b.stageV(t, "v1", fsCap(mnro, "")))
	if d := cmp.Diff([]string{"mount tag fuse.helper [ro]"}, b.m.log); d != "" {
		t.Error(d)
	}
}

// noDevice is asked for the size of nothing: what is shared has no device.
type noDevice struct{ t *testing.T }

func (n noDevice) Rescan(context.Context, string, int64) (int64, error) {
	n.t.Error("looked for a device")
	return 0, provisioner.ErrUnavailable
}

// The kubelet asks for growth of any volume that is smaller on its claim than on
// its PersistentVolume.
func TestSharedGrowsByItself(t *testing.T) {
	b := sharedBed(t)
	b.o.Rescan = noDevice{t}
	noError(t, b.stageV(t, "v1", fsCap(mnmw, "")))
	delete(b.m.devices, "tag") // the path is a directory, no device file
	got, err := b.NodeExpandVolume(t.Context(), &csispec.NodeExpandVolumeRequest{
		VolumeId: "v1", VolumePath: b.staging, CapacityRange: &csispec.CapacityRange{RequiredBytes: 64 << 20},
	})
	if err != nil || got.GetCapacityBytes() != 64<<20 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestSharedOverAnother(t *testing.T) {
	b := sharedBed(t)
	noError(t, b.stageV(t, "v1", fsCap(mnmw, "")))
	b.h.tags["v1"] = "other"
	wantError(t, b.stageV(t, "v1", fsCap(mnmw, "")), provisioner.ErrPrecondition, "tag is mounted there already")
}

// TestSharedByNodeAlone: where the node asks for volumes itself, the volume's
// context says whether many nodes may write it.
func TestSharedByNodeAlone(t *testing.T) {
	for shared, want := range map[string]error{"yes": nil, "no": provisioner.ErrInvalid} {
		b := sharedBed(t)
		b.o.Attachments = &attachments{h: b.h, has: map[string]provisioner.AttachSpec{}}
		b.o.Shares = func(context map[string]string) bool { return context["shared"] == "yes" }
		_, err := b.NodeStageVolume(t.Context(), &csispec.NodeStageVolumeRequest{
			VolumeId: "v1", StagingTargetPath: b.staging, VolumeCapability: fsCap(mnmw, ""), VolumeContext: map[string]string{"shared": shared},
		})
		if !errors.Is(err, want) {
			t.Errorf("shared %s: %v, want %v", shared, err, want)
		}
	}
}
