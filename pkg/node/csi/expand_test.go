package csi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// rescan is a platform that says how large a device is now.
type rescan struct {
	size int64
	err  error
}

func (r rescan) Rescan(context.Context, string, int64) (int64, error) { return r.size, r.err }

const deviceSize = 1 << 20 // of every device of a machine

// TestExpand: the file system has all of its device, or there are words.
func TestExpand(t *testing.T) {
	const grew = "grow nvme0n1 xfs"
	xfs := fsCap(snw, "xfs")
	for name, c := range map[string]struct {
		cap      *csispec.VolumeCapability
		readOnly bool
		platform provisioner.Rescan
		prepare  func(*bed, *csispec.NodeExpandVolumeRequest)
		want     int64
		grows    bool
		err      error
		words    string
	}{
		"a file system":       {cap: xfs, platform: rescan{size: 5 << 20}, want: 5 << 20, grows: true},
		"a raw device":        {cap: blockCap(snw), platform: rescan{size: 5 << 20}, want: 5 << 20},
		"mounted read-only":   {cap: xfs, readOnly: true, platform: rescan{size: 5 << 20}, err: provisioner.ErrPrecondition, words: "read-only"},
		"no growth":           {cap: xfs, err: provisioner.ErrUnsupported, words: "do not grow"},
		"no volume":           {cap: xfs, platform: rescan{}, prepare: func(_ *bed, r *csispec.NodeExpandVolumeRequest) { r.VolumeId = "" }, err: provisioner.ErrInvalid, words: "volume id is missing"},
		"no path":             {cap: xfs, platform: rescan{}, prepare: func(_ *bed, r *csispec.NodeExpandVolumeRequest) { r.VolumePath = "" }, err: provisioner.ErrInvalid, words: "volume path is missing"},
		"nothing mounted":     {cap: xfs, platform: rescan{}, prepare: func(b *bed, r *csispec.NodeExpandVolumeRequest) { r.VolumePath = b.dir }, err: provisioner.ErrNotFound, words: "nothing is mounted"},
		"not larger yet":      {cap: xfs, platform: rescan{err: provisioner.ErrUnavailable}, err: provisioner.ErrUnavailable},
		"lacks a privilege":   {cap: xfs, platform: rescan{size: 5 << 20}, prepare: func(b *bed, _ *csispec.NodeExpandVolumeRequest) { b.m.growErr = hostdev.ErrPrivilege }, err: provisioner.ErrPrecondition, words: "privilege"},
		"another file system": {cap: xfs, platform: rescan{size: 5 << 20}, prepare: func(b *bed, _ *csispec.NodeExpandVolumeRequest) { b.m.growErr = hostdev.ErrForeign }, err: provisioner.ErrPrecondition},
		"after a restart":     {cap: xfs, platform: rescan{err: provisioner.ErrNotFound}, want: deviceSize, grows: true},
		"a raw device after a restart": {
			cap: blockCap(snw), platform: rescan{err: provisioner.ErrNotFound}, want: deviceSize,
		},
		"after a restart, not larger yet": {
			cap: xfs, platform: rescan{err: provisioner.ErrNotFound}, err: provisioner.ErrUnavailable, words: "has 1048576 bytes, not 1048577 yet",
			prepare: func(_ *bed, r *csispec.NodeExpandVolumeRequest) { r.CapacityRange.RequiredBytes = deviceSize + 1 },
		},
		"after a restart, the device is dead": {
			cap: xfs, platform: rescan{err: provisioner.ErrNotFound}, words: "input/output error",
			prepare: func(b *bed, _ *csispec.NodeExpandVolumeRequest) { b.m.dead["/dev/nvme0n1"] = true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.o.Rescan = c.platform
			b.m.formatted["/dev/nvme0n1"] = "xfs"
			noError(t, b.stageV(t, "v1", c.cap))
			noError(t, b.publishV(t, b.target, c.cap, c.readOnly))
			b.m.smaller["/dev/nvme0n1"] = true
			req := &csispec.NodeExpandVolumeRequest{
				VolumeId: "v1", VolumePath: b.target, StagingTargetPath: b.staging, VolumeCapability: c.cap,
				CapacityRange: &csispec.CapacityRange{RequiredBytes: deviceSize},
			}
			if c.prepare != nil {
				c.prepare(b, req)
			}
			resp, err := b.NodeExpandVolume(t.Context(), req)
			if c.err == nil && c.words == "" {
				if err != nil || resp.GetCapacityBytes() != c.want {
					t.Errorf("%d bytes, %v, want %d", resp.GetCapacityBytes(), err, c.want)
				}
			} else if err == nil || c.err != nil && !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v, want %v with %q", err, c.err, c.words)
			}
			if grown := slices.Contains(b.m.log, grew); grown != c.grows {
				t.Errorf("grown %t, want %t", grown, c.grows)
			}
		})
	}
}
