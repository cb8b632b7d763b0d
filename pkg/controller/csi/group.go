package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// CreateVolumeGroupSnapshot keeps what several volumes hold at one instant.
func (s *Server) CreateVolumeGroupSnapshot(ctx context.Context, req *csispec.CreateVolumeGroupSnapshotRequest) (*csispec.CreateVolumeGroupSnapshotResponse, error) {
	name, volumes := req.GetName(), req.GetSourceVolumeIds()
	if s.o.Groups == nil {
		return nil, unsupported("create group snapshot %q", name)
	}
	err := csiserver.Require("name", name)
	if err == nil && len(volumes) == 0 {
		err = csiserver.Invalid("source volume ids are missing")
	}
	if err != nil {
		return nil, fmt.Errorf("create group snapshot %q: %w", name, err)
	}
	g, err := s.o.Groups.Create(ctx, provisioner.GroupSpec{Name: name, VolumeIDs: volumes, Parameters: platformsOwn(req.GetParameters())})
	if err != nil {
		return nil, fmt.Errorf("create group snapshot %q: %w", name, err)
	}
	return &csispec.CreateVolumeGroupSnapshotResponse{GroupSnapshot: s.group(g)}, nil
}

func (s *Server) group(g provisioner.Group) *csispec.VolumeGroupSnapshot {
	out := &csispec.VolumeGroupSnapshot{GroupSnapshotId: g.ID, CreationTime: timestamppb.New(g.Created), ReadyToUse: true}
	for _, v := range g.Snapshots {
		out.Snapshots = append(out.Snapshots, s.snapshot(v))
		out.ReadyToUse = out.ReadyToUse && v.Ready
	}
	return out
}

// DeleteVolumeGroupSnapshot removes a group with its snapshots; one that is gone
// is success. The snapshots named have to be the group's (CSI spec).
func (s *Server) DeleteVolumeGroupSnapshot(ctx context.Context, req *csispec.DeleteVolumeGroupSnapshotRequest) (*csispec.DeleteVolumeGroupSnapshotResponse, error) {
	id := req.GetGroupSnapshotId()
	if s.o.Groups == nil {
		return nil, unsupported("delete group snapshot %q", id)
	}
	if err := csiserver.Require("group snapshot id", id); err != nil {
		return nil, fmt.Errorf("delete group snapshot: %w", err)
	}
	g, err := s.o.Groups.Get(ctx, id)
	if err == nil {
		err = sameMembers(g, req.GetSnapshotIds())
	}
	if err == nil || errors.Is(err, provisioner.ErrNotFound) {
		err = s.o.Groups.Delete(ctx, id)
	}
	if err != nil {
		return nil, fmt.Errorf("delete group snapshot %q: %w", id, err)
	}
	return &csispec.DeleteVolumeGroupSnapshotResponse{}, nil
}

// GetVolumeGroupSnapshot returns a group with its snapshots.
func (s *Server) GetVolumeGroupSnapshot(ctx context.Context, req *csispec.GetVolumeGroupSnapshotRequest) (*csispec.GetVolumeGroupSnapshotResponse, error) {
	id := req.GetGroupSnapshotId()
	if s.o.Groups == nil {
		return nil, unsupported("get group snapshot %q", id)
	}
	if err := csiserver.Require("group snapshot id", id); err != nil {
		return nil, fmt.Errorf("get group snapshot: %w", err)
	}
	g, err := s.o.Groups.Get(ctx, id)
	if err == nil {
		err = sameMembers(g, req.GetSnapshotIds())
	}
	if err != nil {
		return nil, fmt.Errorf("get group snapshot %q: %w", id, err)
	}
	return &csispec.GetVolumeGroupSnapshotResponse{GroupSnapshot: s.group(g)}, nil
}

// sameMembers refuses a list of snapshots that is not the group's; without one
// there is nothing to compare.
func sameMembers(g provisioner.Group, named []string) error {
	if len(named) == 0 {
		return nil
	}
	var have []string
	for _, v := range g.Snapshots {
		have = append(have, v.ID)
	}
	slices.Sort(have)
	if want := slices.Sorted(slices.Values(named)); !slices.Equal(have, want) {
		return csiserver.Invalid("the group has the snapshots %v, named were %v", have, want)
	}
	return nil
}
