package blocks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moor-storage/moor/pkg/provisioner"
)

const size = 1 << 20

// platform has snapshots of 1 MiB with the ranges of a test.
type platform struct {
	provisioner.Snapshots
	ranges []provisioner.Range
	err    error
	asked  []string
}

func (p *platform) Get(_ context.Context, id string) (provisioner.Snapshot, error) {
	if id == "none" {
		return provisioner.Snapshot{}, fmt.Errorf("snapshot %s: %w", id, provisioner.ErrNotFound)
	}
	return provisioner.Snapshot{ID: id, SizeBytes: size}, nil
}

func (p *platform) Allocated(_ context.Context, id string, from int64, found func(provisioner.Range) error) error {
	p.asked = append(p.asked, fmt.Sprintf("%s from %d", id, from))
	for _, r := range p.ranges {
		if err := found(r); err != nil {
			return err
		}
	}
	return p.err
}

func (p *platform) Changed(ctx context.Context, base, target string, from int64, found func(provisioner.Range) error) error {
	return p.Allocated(ctx, base+" to "+target, from, found)
}

// stream keeps what is sent.
type stream[T any] struct {
	grpc.ServerStream
	ctx  context.Context
	sent []T
	err  error
}

func (s *stream[T]) Context() context.Context { return s.ctx }

func (s *stream[T]) Send(m T) error {
	s.sent = append(s.sent, m)
	return s.err
}

type message interface {
	GetBlockMetadataType() csispec.BlockMetadataType
	GetVolumeCapacityBytes() int64
	GetBlockMetadata() []*csispec.BlockMetadata
}

// said is what the messages hold: for each, its ranges.
func said[T message](t *testing.T, messages []T) (out []string) {
	t.Helper()
	for _, m := range messages {
		if m.GetBlockMetadataType() != csispec.BlockMetadataType_VARIABLE_LENGTH || m.GetVolumeCapacityBytes() != size {
			t.Errorf("message %v", m)
		}
		var ranges []string
		for _, b := range m.GetBlockMetadata() {
			ranges = append(ranges, fmt.Sprintf("%d+%d", b.GetByteOffset(), b.GetSizeBytes()))
		}
		out = append(out, strings.Join(ranges, " "))
	}
	return out
}

func TestMessages(t *testing.T) {
	three := []provisioner.Range{{Offset: 0, Length: 4096}, {Offset: 8192, Length: 8192}, {Offset: 65536, Length: 4096}}
	for name, tc := range map[string]struct {
		ranges []provisioner.Range
		most   int32
		want   []string
	}{
		"nothing":      {nil, 0, []string{""}},
		"all in one":   {three, 0, []string{"0+4096 8192+8192 65536+4096"}},
		"just enough":  {three, 3, []string{"0+4096 8192+8192 65536+4096"}},
		"two and one":  {three, 2, []string{"0+4096 8192+8192", "65536+4096"}},
		"one by one":   {three, 1, []string{"0+4096", "8192+8192", "65536+4096"}},
		"more than is": {three, 1 << 30, []string{"0+4096 8192+8192 65536+4096"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &platform{ranges: tc.ranges}
			s := New(p, p)
			allocated := &stream[*csispec.GetMetadataAllocatedResponse]{ctx: t.Context()}
			delta := &stream[*csispec.GetMetadataDeltaResponse]{ctx: t.Context()}
			err := errors.Join(
				s.GetMetadataAllocated(&csispec.GetMetadataAllocatedRequest{SnapshotId: "a", StartingOffset: 7, MaxResults: tc.most}, allocated),
				s.GetMetadataDelta(&csispec.GetMetadataDeltaRequest{BaseSnapshotId: "a", TargetSnapshotId: "b", StartingOffset: size, MaxResults: tc.most}, delta),
			)
			if err != nil {
				t.Fatal(err)
			}
			for what, got := range map[string][]string{"allocated": said(t, allocated.sent), "delta": said(t, delta.sent)} {
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
			if diff := cmp.Diff([]string{"a from 7", fmt.Sprintf("a to b from %d", size)}, p.asked); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestManyRangesAreSentInParts(t *testing.T) {
	p := &platform{ranges: make([]provisioner.Range, defaultRanges+1)}
	got := &stream[*csispec.GetMetadataAllocatedResponse]{ctx: t.Context()}
	if err := New(p, p).GetMetadataAllocated(&csispec.GetMetadataAllocatedRequest{SnapshotId: "a"}, got); err != nil {
		t.Fatal(err)
	}
	if len(got.sent) != 2 || len(got.sent[0].GetBlockMetadata()) != defaultRanges {
		t.Errorf("%d messages", len(got.sent))
	}
}

func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		base, target string
		from         int64
		most         int32
		err          error
		without      bool
		want         codes.Code
	}{
		"no snapshot":      {"", "", 0, 0, nil, false, codes.InvalidArgument},
		"gone":             {"none", "none", 0, 0, nil, false, codes.NotFound},
		"before the start": {"a", "b", -1, 0, nil, false, codes.OutOfRange},
		"after the end":    {"a", "b", size + 1, 0, nil, false, codes.OutOfRange},
		"below nothing":    {"a", "b", 0, -1, nil, false, codes.InvalidArgument},
		"other volumes":    {"a", "b", 0, 0, provisioner.ErrInvalid, false, codes.InvalidArgument},
		"not known":        {"a", "b", 0, 0, nil, true, codes.Unimplemented},
	} {
		t.Run(name, func(t *testing.T) {
			p := &platform{err: tc.err}
			s := New(p, p)
			if tc.without {
				s = New(p, nil)
			}
			for what, err := range map[string]error{
				"allocated": s.GetMetadataAllocated(&csispec.GetMetadataAllocatedRequest{SnapshotId: tc.base, StartingOffset: tc.from, MaxResults: tc.most},
					&stream[*csispec.GetMetadataAllocatedResponse]{ctx: t.Context()}),
				"delta": s.GetMetadataDelta(&csispec.GetMetadataDeltaRequest{BaseSnapshotId: tc.base, TargetSnapshotId: tc.target, StartingOffset: tc.from, MaxResults: tc.most},
					&stream[*csispec.GetMetadataDeltaResponse]{ctx: t.Context()}),
			} {
				if status.Code(err) != tc.want {
					t.Errorf("%s: %v, want %s", what, err, tc.want)
				}
			}
		})
	}
	half := New(&platform{}, &platform{}).GetMetadataDelta(&csispec.GetMetadataDeltaRequest{TargetSnapshotId: "b"}, &stream[*csispec.GetMetadataDeltaResponse]{ctx: t.Context()})
	if status.Code(half) != codes.InvalidArgument || !strings.Contains(half.Error(), "base snapshot id is missing") {
		t.Errorf("without a base: %v", half)
	}
}

// A client that is gone ends the search.
func TestSendFails(t *testing.T) {
	gone := status.Error(codes.Canceled, "gone")
	p := &platform{ranges: make([]provisioner.Range, 5)}
	got := &stream[*csispec.GetMetadataAllocatedResponse]{ctx: t.Context(), err: gone}
	if err := New(p, p).GetMetadataAllocated(&csispec.GetMetadataAllocatedRequest{SnapshotId: "a", MaxResults: 1}, got); status.Code(err) != codes.Canceled || len(got.sent) != 1 {
		t.Errorf("%v, after %d messages", err, len(got.sent))
	}
}
