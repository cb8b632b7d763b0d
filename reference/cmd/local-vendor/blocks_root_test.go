//go:build root

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ranges reads a stream to its end.
func ranges[M interface {
	GetBlockMetadata() []*csispec.BlockMetadata
}](t *testing.T, stream interface{ Recv() (M, error) }, err error,
) (out []string, code codes.Code) {
	t.Helper()
	for err == nil {
		var m M
		if m, err = stream.Recv(); err == nil {
			for _, b := range m.GetBlockMetadata() {
				out = append(out, fmt.Sprintf("%d+%d", b.GetByteOffset(), b.GetSizeBytes()))
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return out, status.Code(err)
}

// What a pod writes to a raw device is what the driver tells of its snapshots.
func TestChangedBlocks(t *testing.T) {
	p, ctx := newProgram(t), t.Context()
	v := ok[*csispec.CreateVolumeResponse](t)(p.CreateVolume(ctx, &csispec.CreateVolumeRequest{
		Name: "vol", CapacityRange: &csispec.CapacityRange{RequiredBytes: 4 << 20}, VolumeCapabilities: []*csispec.VolumeCapability{capability()},
	})).GetVolume()
	p.stage(t, v, capability(), p.path("staging"))
	device, err := os.OpenFile(filepath.Join(p.path("staging"), "vol"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	write := func(blocks ...int64) {
		t.Helper()
		for _, b := range blocks {
			if _, err := device.WriteAt(bytes.Repeat([]byte{byte(b) + 1}, 4096), b*4096); err != nil {
				t.Fatal(err)
			}
		}
		if err := device.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	snap := func(name string) string {
		t.Helper()
		return ok[*csispec.CreateSnapshotResponse](t)(p.CreateSnapshot(ctx, &csispec.CreateSnapshotRequest{SourceVolumeId: "vol", Name: name})).GetSnapshot().GetSnapshotId()
	}
	write(1, 2, 300)
	base := snap("base")
	write(7, 500, 501)
	target := snap("target")
	delta := func(from int64) ([]string, codes.Code) {
		stream, err := p.blocks.GetMetadataDelta(ctx, &csispec.GetMetadataDeltaRequest{BaseSnapshotId: base, TargetSnapshotId: target, StartingOffset: from, MaxResults: 1})
		return ranges[*csispec.GetMetadataDeltaResponse](t, stream, err)
	}
	allocated := func(id string) ([]string, codes.Code) {
		stream, err := p.blocks.GetMetadataAllocated(ctx, &csispec.GetMetadataAllocatedRequest{SnapshotId: id})
		return ranges[*csispec.GetMetadataAllocatedResponse](t, stream, err)
	}
	type answer struct {
		Ranges []string
		Code   codes.Code
	}
	of := func(r []string, c codes.Code) answer { return answer{r, c} }
	for what, c := range map[string]struct{ got, want answer }{
		"data of the first":   {of(allocated(base)), answer{[]string{"4096+8192", "1228800+4096"}, codes.OK}},
		"changes":             {of(delta(0)), answer{[]string{"28672+4096", "2048000+8192"}, codes.OK}},
		"changes, gone on":    {of(delta(28672 + 4096)), answer{[]string{"2048000+8192"}, codes.OK}},
		"changes after all":   {of(delta(4 << 20)), answer{nil, codes.OK}},
		"beyond the end":      {of(delta(4<<20 + 1)), answer{nil, codes.OutOfRange}},
		"a snapshot not here": {of(allocated("none")), answer{nil, codes.NotFound}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	if err := device.Close(); err != nil {
		t.Fatal(err)
	}
	ok[*csispec.NodeUnstageVolumeResponse](t)(p.NodeUnstageVolume(ctx, &csispec.NodeUnstageVolumeRequest{VolumeId: "vol", StagingTargetPath: p.path("staging")}))
}
