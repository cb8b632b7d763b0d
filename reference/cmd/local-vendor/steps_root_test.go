//go:build root

package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/internal/hostdev"
)

// life is that of a volume, in steps that may be repeated.
type life struct {
	*program
	capability      *csispec.VolumeCapability
	kind            string
	asked           *csispec.CapacityRange
	volume          *csispec.Volume
	publish         map[string]string
	staging, target string
}

// newLife is one by a driver of its own.
func newLife(t *testing.T, kind string, c *csispec.VolumeCapability) *life {
	t.Helper()
	p := newProgram(t)
	return &life{program: p, kind: kind, asked: &csispec.CapacityRange{RequiredBytes: 16 << 20}, capability: c, staging: p.path("staging"), target: p.path("target")}
}

// up are the steps until a pod has the volume.
func (l *life) up(t *testing.T) []func() error {
	ctx := t.Context()
	return []func() error{
		func() error {
			v, err := l.CreateVolume(ctx, &csispec.CreateVolumeRequest{
				Name: "vol", CapacityRange: l.asked, Parameters: map[string]string{"kind": l.kind},
				VolumeCapabilities: []*csispec.VolumeCapability{l.capability},
			})
			l.volume = v.GetVolume()
			return err
		},
		func() error {
			a, err := l.ControllerPublishVolume(ctx, &csispec.ControllerPublishVolumeRequest{
				VolumeId: "vol", NodeId: "n", VolumeCapability: l.capability, VolumeContext: l.volume.GetVolumeContext(),
			})
			l.publish = a.GetPublishContext()
			return err
		},
		func() error {
			_, err := l.NodeStageVolume(ctx, &csispec.NodeStageVolumeRequest{
				VolumeId: "vol", StagingTargetPath: l.staging, VolumeCapability: l.capability, PublishContext: l.publish, VolumeContext: l.volume.GetVolumeContext(),
			})
			return err
		},
		func() error {
			_, err := l.NodePublishVolume(ctx, &csispec.NodePublishVolumeRequest{
				VolumeId: "vol", StagingTargetPath: l.staging, TargetPath: l.target, VolumeCapability: l.capability, VolumeContext: l.volume.GetVolumeContext(),
			})
			return err
		},
	}
}

// down are the steps until nothing is left of it.
func (l *life) down(t *testing.T) []func() error {
	ctx := t.Context()
	return []func() error{
		func() error {
			_, err := l.NodeUnpublishVolume(ctx, &csispec.NodeUnpublishVolumeRequest{VolumeId: "vol", TargetPath: l.target})
			return err
		},
		func() error {
			_, err := l.NodeUnstageVolume(ctx, &csispec.NodeUnstageVolumeRequest{VolumeId: "vol", StagingTargetPath: l.staging})
			return err
		},
		func() error {
			_, err := l.ControllerUnpublishVolume(ctx, &csispec.ControllerUnpublishVolumeRequest{VolumeId: "vol", NodeId: "n"})
			return err
		},
		func() error {
			_, err := l.DeleteVolume(ctx, &csispec.DeleteVolumeRequest{VolumeId: "vol"})
			return err
		},
	}
}

// do makes the steps.
func do(t *testing.T, when string, steps ...func() error) {
	t.Helper()
	for i, step := range steps {
		if err := step(); err != nil {
			t.Fatalf("%s, step %d: %v", when, i, err)
		}
	}
}

// file is what the pod writes to, and reads.
func (l *life) file(t *testing.T, flags int) *os.File {
	t.Helper()
	path := l.target
	if l.capability.GetMount() != nil {
		path = filepath.Join(l.target, "file")
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestKilledAfterEachStep kills the driver after each step in the life of a volume: the
// step may be repeated, what a pod has synced is there, and nothing is left in the end.
// Devices end with their driver: the steps since the volume was staged are taken back
// and made again.
func TestKilledAfterEachStep(t *testing.T) {
	for name, c := range map[string]struct {
		kind       string
		capability *csispec.VolumeCapability
	}{
		"a raw device":              {"device", capability()},
		"a file system on a device": {"device", mountCapability()},
		"a directory":               {"directory", mountCapability()},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t, c.kind, c.capability)
			up, down := l.up(t), l.down(t)
			for i := range up {
				do(t, "up", up[i])
				l.restart(t, syscall.SIGKILL)
				if c.kind == "device" {
					do(t, "taken back", down[:2]...)
					do(t, "again", up[:i]...)
				}
				do(t, "repeated", up[i])
			}
			f := l.file(t, os.O_RDWR|os.O_CREATE)
			_, err := f.WriteString("synced")
			if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
				t.Fatal(err)
			}
			l.restart(t, syscall.SIGKILL)
			if c.kind == "device" {
				do(t, "taken back", down[:2]...)
			}
			do(t, "again", up...)
			f = l.file(t, os.O_RDONLY)
			got := make([]byte, 6)
			_, err = io.ReadFull(f, got)
			if err := errors.Join(err, f.Close()); err != nil || string(got) != "synced" {
				t.Errorf("read %q, %v", got, err)
			}
			for i := range down {
				do(t, "down", down[i])
				l.restart(t, syscall.SIGKILL)
				do(t, "repeated", down[i])
			}
			left, err := filepath.Glob(l.path("volumes/*vol*"))
			if err != nil || len(left) != 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

// TestBlockDevice: a raw device has the size that was asked for, or the driver's, and a
// pod that has it open sees it grow.
func TestBlockDevice(t *testing.T) {
	l, ctx := newLife(t, "device", capability()), t.Context()
	for name, c := range map[string]struct {
		asked *csispec.CapacityRange
		want  int64
	}{
		"no size":     {nil, 1 << 30},
		"one byte":    {&csispec.CapacityRange{RequiredBytes: 1}, 1 << 20},
		"a size":      {&csispec.CapacityRange{RequiredBytes: 4 << 20}, 4 << 20},
		"an odd size": {&csispec.CapacityRange{RequiredBytes: 4<<20 + 1}, 5 << 20},
		"a limit":     {&csispec.CapacityRange{LimitBytes: 3 << 20}, 3 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			l.asked = c.asked
			do(t, "up", l.up(t)...)
			wantSize := func(want, told int64) {
				t.Helper()
				if got, err := hostdev.Size(l.target); err != nil || got != want || told != want {
					t.Errorf("the pod sees %d bytes, %v; told were %d, want %d", got, err, told, want)
				}
			}
			wantSize(c.want, l.volume.GetCapacityBytes())
			pod := l.file(t, os.O_RDWR)
			defer pod.Close()
			larger := &csispec.CapacityRange{RequiredBytes: 2 * c.want}
			ok[*csispec.ControllerExpandVolumeResponse](t)(l.ControllerExpandVolume(ctx, &csispec.ControllerExpandVolumeRequest{VolumeId: "vol", CapacityRange: larger}))
			grown := ok[*csispec.NodeExpandVolumeResponse](t)(l.NodeExpandVolume(ctx, &csispec.NodeExpandVolumeRequest{
				VolumeId: "vol", VolumePath: l.target, StagingTargetPath: l.staging, VolumeCapability: l.capability, CapacityRange: larger,
			}))
			wantSize(2*c.want, grown.GetCapacityBytes())
			_, err := pod.WriteAt([]byte("new"), 2*c.want-4096)
			if err := errors.Join(err, pod.Sync(), pod.Close()); err != nil {
				t.Errorf("write where it grew: %v", err)
			}
			do(t, "down", l.down(t)...)
		})
	}
}
