package csi

import (
	"context"
	"fmt"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// CreateVolume makes the volume, or returns it if it is there already.
func (s *Server) CreateVolume(ctx context.Context, req *csispec.CreateVolumeRequest) (*csispec.CreateVolumeResponse, error) {
	source, err := s.parseSource(req.GetVolumeContentSource())
	if err != nil {
		return nil, fmt.Errorf("create volume %q: %w", req.GetName(), err)
	}
	spec, err := s.parseCreate(req)
	if err != nil {
		return nil, fmt.Errorf("create volume %q: %w", req.GetName(), err)
	}
	v, err := s.create(ctx, spec, source)
	if err != nil {
		return nil, fmt.Errorf("create volume %q: %w", spec.Name, err)
	}
	if v.CapacityBytes <= 0 {
		return nil, fmt.Errorf("create volume %q: the platform made it but reports no capacity", spec.Name)
	}
	return &csispec.CreateVolumeResponse{Volume: s.volume(v)}, nil
}

// create makes the volume, as a copy if it has a source.
func (s *Server) create(ctx context.Context, spec provisioner.VolumeSpec, source provisioner.Source) (provisioner.Volume, error) {
	if source == (provisioner.Source{}) {
		return s.o.Volumes.Create(ctx, spec)
	}
	return s.o.Copies.CreateFrom(ctx, spec, source)
}

// parseSource reads what a volume is to be a copy of; zero for one that is to
// be empty.
func (s *Server) parseSource(from *csispec.VolumeContentSource) (provisioner.Source, error) {
	snapshot, volume := from.GetSnapshot().GetSnapshotId(), from.GetVolume().GetVolumeId()
	switch {
	case from == nil:
		return provisioner.Source{}, nil
	case snapshot == "" && volume == "":
		return provisioner.Source{}, csiserver.Invalid("the dataSource names neither a snapshot nor a volume")
	case s.o.Copies == nil:
		return provisioner.Source{}, csiserver.Invalid("a volume cannot be made from a snapshot or another volume: leave dataSource empty")
	case snapshot != "" && s.o.Snapshots == nil:
		return provisioner.Source{}, csiserver.Invalid("a volume cannot be made from a snapshot: leave dataSource empty")
	}
	return provisioner.Source{SnapshotID: snapshot, VolumeID: volume}, nil
}

// volume is a volume as CSI tells of it.
func (s *Server) volume(v provisioner.Volume) *csispec.Volume {
	out := &csispec.Volume{
		VolumeId: v.ID, CapacityBytes: v.CapacityBytes, VolumeContext: v.Context, AccessibleTopology: s.topology(v.AccessibleTopology),
	}
	switch {
	case v.Source.SnapshotID != "":
		out.ContentSource = &csispec.VolumeContentSource{Type: &csispec.VolumeContentSource_Snapshot{
			Snapshot: &csispec.VolumeContentSource_SnapshotSource{SnapshotId: v.Source.SnapshotID},
		}}
	case v.Source.VolumeID != "":
		out.ContentSource = &csispec.VolumeContentSource{Type: &csispec.VolumeContentSource_Volume{
			Volume: &csispec.VolumeContentSource_VolumeSource{VolumeId: v.Source.VolumeID},
		}}
	}
	return out
}

func (s *Server) parseCreate(req *csispec.CreateVolumeRequest) (provisioner.VolumeSpec, error) {
	var none provisioner.VolumeSpec
	if err := csiserver.Require("name", req.GetName()); err != nil {
		return none, err
	}
	if n := len(req.GetName()); n > maxNameBytes {
		return none, csiserver.Invalid("the name has %d bytes, at most %d are allowed", n, maxNameBytes)
	}
	if len(req.GetMutableParameters()) > 0 && s.o.Change == nil {
		return none, csiserver.Invalid("this platform knows no VolumeAttributesClass")
	}
	if err := s.reachable(req.GetAccessibilityRequirements()); err != nil {
		return none, err
	}
	caps, err := csiserver.ParseCapabilities(req.GetVolumeCapabilities())
	if err != nil {
		return none, err
	}
	shared := s.shares(req.GetParameters())
	if err := s.usable(caps, shared); err != nil {
		return none, err
	}
	size, limit, err := parseSize(req.GetCapacityRange(), s.o.DefaultBytes)
	if err == nil && !shared {
		size, err = fitting(size, limit, caps)
	}
	if err != nil {
		return none, err
	}
	parameters, err := s.o.Normalize(platformsOwn(req.GetParameters()))
	if err != nil {
		return none, err
	}
	spec := provisioner.VolumeSpec{
		Name: req.GetName(), CapacityBytes: size, LimitBytes: limit,
		AccessModes: csiserver.AccessModes(caps), Mode: s.platformMode(caps[0].Mode, shared),
		Parameters: parameters, Mutable: req.GetMutableParameters(),
	}
	if s.o.Places {
		spec.AccessibleFrom = placesOf(req.GetAccessibilityRequirements())
	}
	return spec, nil
}

// parseSize reads a capacity range in bytes. Nothing asked is def, or the
// limit if that is smaller.
func parseSize(r *csispec.CapacityRange, def int64) (size, limit int64, err error) {
	size, limit = r.GetRequiredBytes(), r.GetLimitBytes()
	switch {
	case size < 0 || limit < 0:
		return 0, 0, csiserver.Invalid("the size may not be negative: required %d, limit %d bytes", size, limit)
	case limit > 0 && size > limit:
		return 0, 0, fmt.Errorf("required are %d bytes, more than the limit of %d: %w", size, limit, provisioner.ErrOutOfRange)
	case size == 0 && limit > 0:
		return min(def, limit), limit, nil
	case size == 0:
		return def, 0, nil
	}
	return size, limit, nil
}

// fitting is the size in bytes of a volume that can hold the file systems it is
// asked for: a smaller one could be made, and never mounted.
func fitting(size, limit int64, caps []csiserver.Capability) (int64, error) {
	for _, c := range caps {
		least := hostdev.LeastBytes(c.FSType)
		if limit > 0 && limit < least {
			return 0, fmt.Errorf("%s needs at least %d bytes, more than the limit of %d: %w", c.FSType, least, limit, provisioner.ErrOutOfRange)
		}
		size = max(size, least)
	}
	return size, nil
}

// DeleteVolume removes the volume; one that is gone is success.
func (s *Server) DeleteVolume(ctx context.Context, req *csispec.DeleteVolumeRequest) (*csispec.DeleteVolumeResponse, error) {
	if err := csiserver.Require("volume id", req.GetVolumeId()); err != nil {
		return nil, fmt.Errorf("delete volume: %w", err)
	}
	if err := s.o.Volumes.Delete(ctx, req.GetVolumeId()); err != nil {
		return nil, fmt.Errorf("delete volume %q: %w", req.GetVolumeId(), err)
	}
	return &csispec.DeleteVolumeResponse{}, nil
}

// ControllerExpandVolume makes a volume larger; one that is large enough is
// success.
func (s *Server) ControllerExpandVolume(ctx context.Context, req *csispec.ControllerExpandVolumeRequest) (*csispec.ControllerExpandVolumeResponse, error) {
	id := req.GetVolumeId()
	if s.o.Expansion == nil {
		return nil, unsupported("expand volume %q", id)
	}
	err := csiserver.Require("volume id", id)
	if err == nil && req.GetCapacityRange() == nil {
		err = csiserver.Invalid("capacity range is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("expand volume %q: %w", id, err)
	}
	want, limit, err := parseSize(req.GetCapacityRange(), 0)
	if err != nil {
		return nil, fmt.Errorf("expand volume %q: %w", id, err)
	}
	size, err := s.o.Expansion.Expand(ctx, id, want, limit)
	if err != nil {
		return nil, fmt.Errorf("expand volume %q to %d bytes: %w", id, want, err)
	}
	return &csispec.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: s.o.NodeExpands}, nil
}

// ControllerModifyVolume sets the parameters of a VolumeAttributesClass.
func (s *Server) ControllerModifyVolume(ctx context.Context, req *csispec.ControllerModifyVolumeRequest) (*csispec.ControllerModifyVolumeResponse, error) {
	id := req.GetVolumeId()
	if s.o.Change == nil {
		return nil, unsupported("modify volume %q", id)
	}
	if err := csiserver.Require("volume id", id); err != nil {
		return nil, fmt.Errorf("modify volume: %w", err)
	}
	if err := s.o.Change.Modify(ctx, id, platformsOwn(req.GetMutableParameters())); err != nil {
		return nil, fmt.Errorf("modify volume %q: %w", id, err)
	}
	return &csispec.ControllerModifyVolumeResponse{}, nil
}
