package csi

import (
	"context"
	"errors"
	"fmt"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

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

func isGone(err error) bool { return errors.Is(err, provisioner.ErrNotFound) }
