package csi

import (
	"context"
	"errors"
	"fmt"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// CreateSnapshot keeps what a volume holds, or returns the snapshot if it is
// there.
func (s *Server) CreateSnapshot(ctx context.Context, req *csispec.CreateSnapshotRequest) (*csispec.CreateSnapshotResponse, error) {
	name, volume := req.GetName(), req.GetSourceVolumeId()
	if s.o.Snapshots == nil {
		return nil, unsupported("create snapshot %q", name)
	}
	err := csiserver.Require("name", name, "source volume id", volume)
	if err == nil {
		err = s.reachable(req.GetAccessibilityRequirements())
	}
	wanted := placesOf(req.GetAccessibilityRequirements())
	if err == nil {
		err = s.keepable(ctx, volume, wanted)
	}
	if err != nil {
		return nil, fmt.Errorf("create snapshot %q: %w", name, err)
	}
	got, err := s.o.Snapshots.Create(ctx, provisioner.SnapshotSpec{Name: name, VolumeID: volume, Parameters: platformsOwn(req.GetParameters())})
	if err != nil {
		return nil, fmt.Errorf("create snapshot %q of volume %q: %w", name, volume, err)
	}
	got.AccessibleTopology = reachedFrom(got.AccessibleTopology, wanted)
	return &csispec.CreateSnapshotResponse{Snapshot: s.snapshot(got)}, nil
}

// snapshot is a snapshot as CSI tells of it.
func (s *Server) snapshot(v provisioner.Snapshot) *csispec.Snapshot {
	return &csispec.Snapshot{
		SnapshotId: v.ID, SourceVolumeId: v.VolumeID, SizeBytes: v.SizeBytes, ReadyToUse: v.Ready,
		CreationTime: timestamppb.New(v.Created), GroupSnapshotId: v.GroupID, AccessibleTopology: s.topology(v.AccessibleTopology),
	}
}

// DeleteSnapshot removes a snapshot; one that is gone is success.
func (s *Server) DeleteSnapshot(ctx context.Context, req *csispec.DeleteSnapshotRequest) (*csispec.DeleteSnapshotResponse, error) {
	id := req.GetSnapshotId()
	if s.o.Snapshots == nil {
		return nil, unsupported("delete snapshot %q", id)
	}
	if err := csiserver.Require("snapshot id", id); err != nil {
		return nil, fmt.Errorf("delete snapshot: %w", err)
	}
	if err := s.o.Snapshots.Delete(ctx, id); err != nil {
		return nil, fmt.Errorf("delete snapshot %q: %w", id, err)
	}
	return &csispec.DeleteSnapshotResponse{}, nil
}

// GetSnapshot returns one snapshot.
func (s *Server) GetSnapshot(ctx context.Context, req *csispec.GetSnapshotRequest) (*csispec.GetSnapshotResponse, error) {
	id := req.GetSnapshotId()
	if s.o.Snapshots == nil {
		return nil, unsupported("get snapshot %q", id)
	}
	if err := csiserver.Require("snapshot id", id); err != nil {
		return nil, fmt.Errorf("get snapshot: %w", err)
	}
	got, err := s.o.Snapshots.Get(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("get snapshot %q: %w", id, err)
	}
	return &csispec.GetSnapshotResponse{Snapshot: s.snapshot(got)}, nil
}

// ListSnapshots returns a page of the snapshots: all, those of a volume, or the
// one that is named.
func (s *Server) ListSnapshots(ctx context.Context, req *csispec.ListSnapshotsRequest) (*csispec.ListSnapshotsResponse, error) {
	if s.o.Snapshots == nil {
		return nil, unsupported("list snapshots")
	}
	page, err := listSnapshots.page(req.GetStartingToken(), req.GetMaxEntries())
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	if id := req.GetSnapshotId(); id != "" {
		return s.listOne(ctx, id, req.GetSourceVolumeId())
	}
	all, next, err := s.o.Snapshots.List(ctx, provisioner.SnapshotFilter{VolumeID: req.GetSourceVolumeId()}, page)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	resp := &csispec.ListSnapshotsResponse{NextToken: listSnapshots.token(next)}
	for _, v := range all {
		resp.Entries = append(resp.Entries, &csispec.ListSnapshotsResponse_Entry{Snapshot: s.snapshot(v)})
	}
	return resp, nil
}

// listOne is the list of the snapshot named; empty if there is none, or if it
// is of another volume than that named, if one is.
func (s *Server) listOne(ctx context.Context, id, volume string) (*csispec.ListSnapshotsResponse, error) {
	resp := &csispec.ListSnapshotsResponse{}
	got, err := s.o.Snapshots.Get(ctx, id)
	switch {
	case errors.Is(err, provisioner.ErrNotFound):
		return resp, nil
	case err != nil:
		return nil, fmt.Errorf("list snapshot %q: %w", id, err)
	case volume == "" || volume == got.VolumeID:
		resp.Entries = []*csispec.ListSnapshotsResponse_Entry{{Snapshot: s.snapshot(got)}}
	}
	return resp, nil
}
