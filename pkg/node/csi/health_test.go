package csi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestVolumeHealth: a volume is well as long as its device and its mounts answer.
func TestVolumeHealth(t *testing.T) {
	const device = "/dev/nvme0n1"
	for name, c := range map[string]struct {
		spoil func(t *testing.T, b *bed)
		want  []string
		err   error
	}{
		"well":             {func(*testing.T, *bed) {}, nil, nil},
		"not open":         {func(_ *testing.T, b *bed) { delete(b.h.open, "v1") }, []string{reasonNotOpen}, nil},
		"nothing mounted":  {func(t *testing.T, b *bed) { noError(t, b.unpublishV(t, b.target)); noError(t, b.m.Unmount(b.staging)) }, nil, nil},
		"dead device":      {func(_ *testing.T, b *bed) { b.m.dead[device] = true }, []string{reasonDeviceDead, reasonMountDead}, nil},
		"dead publication": {func(_ *testing.T, b *bed) { b.m.below[b.target] = 99 }, []string{reasonMountDead}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b, access := newBed(t), fsCap(snw, "")
			noError(t, b.stageV(t, "v1", access))
			noError(t, b.publishV(t, b.target, access, false))
			c.spoil(t, b)
			resp, err := b.NodeGetVolumeHealth(t.Context(), &csispec.NodeGetVolumeHealthRequest{
				VolumeId: "v1", StagingTargetPath: b.staging, VolumePublishPath: b.target,
			})
			if !errors.Is(err, c.err) {
				t.Fatal(err)
			}
			var got []string
			for _, p := range resp.GetVolumeHealth().GetHealthStatuses() {
				got = append(got, p.GetReason())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	_, err := newBed(t).NodeGetVolumeHealth(t.Context(), &csispec.NodeGetVolumeHealthRequest{})
	wantError(t, err, provisioner.ErrInvalid, "volume id is missing")
}

// TestReady: a new pod waits for a device that is known not to answer. Of a volume that is not known to be open
// nothing is known, and to wait for that would be to wait for ever.
func TestReady(t *testing.T) {
	const device = "/dev/nvme0n1"
	for name, c := range map[string]struct {
		spoil func(b *bed)
		want  bool
	}{
		"its device answers":         {func(*bed) {}, true},
		"its device is dead":         {func(b *bed) { b.m.dead[device] = true }, false},
		"its device is gone":         {func(b *bed) { b.h.lookup = fmt.Errorf("gone: %w: %w", hostdev.ErrAbsent, provisioner.ErrNotFound) }, false},
		"it cannot be found out":     {func(b *bed) { b.h.lookup = errors.New("sysfs cannot be read") }, false},
		"it is not known to be open": {func(b *bed) { delete(b.h.open, "v1") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			noError(t, b.stageV(t, "v1", fsCap(snw, "")))
			c.spoil(b)
			if got := b.Ready(t.Context(), "v1"); got != c.want {
				t.Errorf("it is ready: %t", got)
			}
		})
	}
}

func TestStorageHealth(t *testing.T) {
	ask := func(storage func(context.Context) error) (*csispec.NodeGetStorageHealthResponse, error) {
		b := newBed(t)
		b.o.Storage = storage
		return b.NodeGetStorageHealth(t.Context(), &csispec.NodeGetStorageHealthRequest{})
	}
	if _, err := ask(nil); !errors.Is(err, provisioner.ErrUnsupported) {
		t.Errorf("a node that cannot tell: %v", err)
	}
	if resp, err := ask(func(context.Context) error { return nil }); err != nil || len(resp.GetBackendHealth()) != 0 {
		t.Errorf("storage in reach: %v, %v", resp, err)
	}
	resp, err := ask(func(context.Context) error { return errors.New("no route") })
	if err != nil || len(resp.GetBackendHealth()) != 1 {
		t.Fatalf("storage out of reach: %v, %v", resp, err)
	}
	h := resp.GetBackendHealth()[0]
	if h.GetStatus() != csispec.StorageHealthErrorType_STORAGE_UNREACHABLE || h.GetReason() != reasonStorage || h.GetMessage() != "no route" {
		t.Errorf("storage out of reach: %v", h)
	}
}

// TestStats: a file system tells its bytes and inodes, a raw device its size.
func TestStats(t *testing.T) {
	const bytes, inodes = csispec.VolumeUsage_BYTES, csispec.VolumeUsage_INODES
	files := []*csispec.VolumeUsage{{Unit: bytes, Total: 100, Available: 60, Used: 30}, {Unit: inodes, Total: 10, Available: 9, Used: 1}}
	for name, c := range map[string]struct {
		cap   *csispec.VolumeCapability
		spoil func(*bed, *csispec.NodeGetVolumeStatsRequest)
		want  []*csispec.VolumeUsage
		err   error
		words string
	}{
		"a file system":   {cap: fsCap(snw, ""), want: files},
		"a raw device":    {cap: blockCap(snw), want: []*csispec.VolumeUsage{{Unit: bytes, Total: deviceSize}}},
		"where it is not": {fsCap(snw, ""), func(_ *bed, r *csispec.NodeGetVolumeStatsRequest) { r.VolumePath += "/not" }, nil, provisioner.ErrNotFound, "nothing is mounted"},
		"of no volume":    {fsCap(snw, ""), func(_ *bed, r *csispec.NodeGetVolumeStatsRequest) { r.VolumeId = "" }, nil, provisioner.ErrInvalid, "volume id is missing"},
		"a dead device":   {fsCap(snw, ""), func(b *bed, _ *csispec.NodeGetVolumeStatsRequest) { b.m.dead["/dev/nvme0n1"] = true }, nil, nil, "input/output error"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			noError(t, b.stageV(t, "v1", c.cap))
			noError(t, b.publishV(t, b.target, c.cap, false))
			req := &csispec.NodeGetVolumeStatsRequest{VolumeId: "v1", VolumePath: b.target}
			if c.spoil != nil {
				c.spoil(b, req)
			}
			got, err := b.NodeGetVolumeStats(t.Context(), req)
			if c.words != "" && (err == nil || c.err != nil && !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.words)) || c.words == "" && err != nil {
				t.Errorf("error %v, want %v with %q", err, c.err, c.words)
			}
			if d := cmp.Diff(c.want, got.GetUsage(), protocmp.Transform()); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}
