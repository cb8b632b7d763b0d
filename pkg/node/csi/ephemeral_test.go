package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// inline makes ephemeral volumes of one sort.
type inline struct {
	dev  provisioner.Device
	err  error
	spec provisioner.VolumeSpec
	log  []string
}

func (i *inline) Make(_ context.Context, spec provisioner.VolumeSpec) (provisioner.Device, error) {
	i.spec = spec
	i.log = append(i.log, "make "+spec.Name)
	return i.dev, i.err
}

func (i *inline) Remove(_ context.Context, name string) error {
	i.log = append(i.log, "remove "+name)
	return nil
}

func (b *bed) publishInline(t *testing.T, c *csispec.VolumeCapability, ro bool, attributes map[string]string) error {
	t.Helper()
	all := map[string]string{contextEphemeral: "true", contextReserved + "pod.uid": "u"}
	for k, v := range attributes {
		all[k] = v
	}
	_, err := b.NodePublishVolume(t.Context(), &csispec.NodePublishVolumeRequest{
		VolumeId: "csi-1", TargetPath: b.target, VolumeCapability: c, Readonly: ro, VolumeContext: all,
	})
	return err
}

// An inline volume may be of each sort: it is mounted on the target itself.
func TestInlineVolumesOfEachSort(t *testing.T) {
	for name, tc := range map[string]struct {
		dev  func(*bed) provisioner.Device
		want []string
	}{
		"directory": {func(b *bed) provisioner.Device { return provisioner.Device{Directory: b.h.dirs["v1"]} }, []string{"mount d1 ext4 [bind noatime ro]", "unmount"}},
		"device":    {func(*bed) provisioner.Device { return provisioner.Device{Path: "/dev/nvme0n1"} }, []string{"format nvme0n1 ext4 true", "mount nvme0n1 ext4 [noatime ro]", "unmount"}},
		"tag":       {func(*bed) provisioner.Device { return provisioner.Device{Tag: "tag"} }, []string{"mount tag virtiofs [noatime ro]", "unmount"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := directoryBed(t)
			b.m.devices["tag"] = 9
			platform := &inline{dev: tc.dev(b)}
			b.o.Ephemeral = platform
			for range 2 {
				noError(t, b.publishInline(t, fsCap(snw, "", "noatime"), true, map[string]string{"size": "64Mi", "color": "blue"}))
			}
			want := provisioner.VolumeSpec{
				Name: "csi-1", Mode: provisioner.Filesystem, CapacityBytes: 64 << 20, AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce},
				Parameters: map[string]string{"color": "blue"},
			}
			if d := cmp.Diff(want, platform.spec); d != "" {
				t.Error(d)
			}
			for range 2 {
				_, err := b.NodeUnpublishVolume(t.Context(), &csispec.NodeUnpublishVolumeRequest{VolumeId: "csi-1", TargetPath: b.target})
				noError(t, err)
			}
			if d := cmp.Diff(tc.want, b.m.log); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff([]string{"make csi-1", "make csi-1", "remove csi-1", "remove csi-1"}, platform.log); d != "" {
				t.Error(d)
			}
			if _, err := os.Lstat(b.target); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the target is still there: %v", err)
			}
		})
	}
}

func TestInlineVolumeRefused(t *testing.T) {
	calls := func(c ...string) []string { return c }
	for name, tc := range map[string]struct {
		prepare    func(*bed, *inline)
		cap        *csispec.VolumeCapability
		attributes map[string]string
		want       error
		words      string
		calls      []string
	}{
		"a driver without":  {func(b *bed, _ *inline) { b.o.Ephemeral = nil }, fsCap(snw, ""), nil, provisioner.ErrInvalid, "has no inline volumes", nil},
		"no number":         {nil, fsCap(snw, ""), map[string]string{"size": "large"}, provisioner.ErrInvalid, `"large"`, nil},
		"no bytes":          {nil, fsCap(snw, ""), map[string]string{"size": "0"}, provisioner.ErrInvalid, "size in bytes", nil},
		"half a byte":       {nil, fsCap(snw, ""), map[string]string{"size": "500m"}, provisioner.ErrInvalid, "size in bytes", nil},
		"below nothing":     {nil, fsCap(snw, ""), map[string]string{"size": "-1Gi"}, provisioner.ErrInvalid, "size in bytes", nil},
		"more than fits":    {nil, fsCap(snw, ""), map[string]string{"size": "1e30"}, provisioner.ErrInvalid, "size in bytes", nil},
		"no capability":     {nil, nil, nil, provisioner.ErrInvalid, "capability is missing", nil},
		"no target":         {func(b *bed, _ *inline) { b.target = "" }, fsCap(snw, ""), nil, provisioner.ErrInvalid, "target path is missing", nil},
		"by the platform":   {func(_ *bed, i *inline) { i.err = provisioner.ErrExhausted }, fsCap(snw, ""), nil, provisioner.ErrExhausted, "", calls("make csi-1")},
		"raw block":         {nil, blockCap(snw), nil, provisioner.ErrInvalid, "has no device", calls("make csi-1", "remove csi-1")},
		"gone at once":      {func(b *bed, i *inline) { i.dev.Directory = filepath.Join(b.dir, "none") }, fsCap(snw, ""), nil, provisioner.ErrPrecondition, "is gone", calls("make csi-1", "remove csi-1")},
		"another is there":  {func(b *bed, _ *inline) { _ = b.m.Mount(b.h.dirs["v2"], b.target, "", []string{"bind"}) }, fsCap(snw, ""), nil, provisioner.ErrBusy, "is mounted, so the volume stays", calls("make csi-1")},
		"no device to open": {func(_ *bed, i *inline) { i.dev = provisioner.Device{Name: "x"} }, fsCap(snw, ""), nil, nil, "no file in /dev", calls("make csi-1", "remove csi-1")},
	} {
		t.Run(name, func(t *testing.T) {
			b := directoryBed(t)
			platform := &inline{dev: provisioner.Device{Directory: b.h.dirs["v1"]}}
			b.o.Ephemeral = platform
			if tc.prepare != nil {
				tc.prepare(b, platform)
			}
			before := len(b.m.table)
			err := b.publishInline(t, tc.cap, false, tc.attributes)
			if tc.want == nil {
				tc.want = err
			}
			wantError(t, err, tc.want, tc.words)
			if err == nil || len(b.m.table) != before {
				t.Errorf("error %v, mounts %v", err, b.m.table)
			}
			if d := cmp.Diff(tc.calls, platform.log); d != "" {
				t.Error(d)
			}
		})
	}
}
