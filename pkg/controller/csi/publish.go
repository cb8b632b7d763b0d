package csi

import (
	"context"
	"errors"
	"fmt"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	epochv1 "github.com/moor-storage/moor/api/epoch/v1"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// ControllerPublishVolume lets a node use the volume.
func (s *Server) ControllerPublishVolume(ctx context.Context, req *csispec.ControllerPublishVolumeRequest) (*csispec.ControllerPublishVolumeResponse, error) {
	spec, err := s.parsePublish(req)
	if err != nil {
		return nil, fmt.Errorf("publish volume %q to node %q: %w", req.GetVolumeId(), req.GetNodeId(), err)
	}
	a, err := s.o.Attachments.Attach(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("publish volume %q to node %q: %w", spec.VolumeID, spec.Node, err)
	}
	return &csispec.ControllerPublishVolumeResponse{PublishContext: a.PublishContext}, nil
}

func (s *Server) parsePublish(req *csispec.ControllerPublishVolumeRequest) (provisioner.AttachSpec, error) {
	var none provisioner.AttachSpec
	if s.o.Attachments == nil {
		return none, fmt.Errorf("this platform needs no attachment: %w", provisioner.ErrUnsupported)
	}
	if err := csiserver.Require("volume id", req.GetVolumeId(), "node id", req.GetNodeId()); err != nil {
		return none, err
	}
	c, err := csiserver.ParseCapability(req.GetVolumeCapability())
	if err != nil {
		return none, err
	}
	if err := s.usable([]csiserver.Capability{c}, s.shares(req.GetVolumeContext())); err != nil {
		return none, err
	}
	return provisioner.AttachSpec{
		VolumeID: req.GetVolumeId(), Node: req.GetNodeId(),
		ReadOnly:      req.GetReadonly() || c.ReadOnly,
		AccessModes:   []provisioner.AccessMode{c.Access},
		VolumeContext: req.GetVolumeContext(),
	}, nil
}

// ControllerUnpublishVolume takes the volume from a node; from every node if
// none is named (CSI spec "ControllerUnpublishVolume"). What is not published,
// or gone, is success.
func (s *Server) ControllerUnpublishVolume(ctx context.Context, req *csispec.ControllerUnpublishVolumeRequest) (*csispec.ControllerUnpublishVolumeResponse, error) {
	id, node := req.GetVolumeId(), req.GetNodeId()
	if err := csiserver.Require("volume id", id); err != nil {
		return nil, fmt.Errorf("unpublish volume: %w", err)
	}
	if s.o.Attachments == nil {
		return nil, fmt.Errorf("unpublish volume %q: this platform needs no attachment: %w", id, provisioner.ErrUnsupported)
	}
	err := s.o.Attachments.Detach(ctx, id, node)
	if err != nil && !errors.Is(err, provisioner.ErrNotFound) {
		return nil, fmt.Errorf("unpublish volume %q from node %q: %w", id, node, err)
	}
	return &csispec.ControllerUnpublishVolumeResponse{}, nil
}

// RegisterFencing has the server of a vendor's CSI controller serve FencingService over
// the platform's Fencing; nothing if it has none, so that callers get UNIMPLEMENTED.
func RegisterFencing(s grpc.ServiceRegistrar, f provisioner.Fencing) {
	if f != nil {
		epochv1.RegisterFencingServiceServer(s, fencing{fencing: f})
	}
}

// fencing is FencingService over a platform.
type fencing struct {
	epochv1.UnimplementedFencingServiceServer
	fencing provisioner.Fencing
}

// GetFencingInfo implements FencingService.
func (f fencing) GetFencingInfo(context.Context, *epochv1.GetFencingInfoRequest) (*epochv1.GetFencingInfoResponse, error) {
	return &epochv1.GetFencingInfoResponse{}, nil
}

// Fence implements FencingService.
func (f fencing) Fence(ctx context.Context, req *epochv1.FenceRequest) (*epochv1.FenceResponse, error) {
	if req.GetVolumeId() == "" || req.GetEpoch() < 1 {
		return nil, fmt.Errorf("volume_id is empty, or epoch %d is not positive: %w", req.GetEpoch(), provisioner.ErrInvalid)
	}
	if err := f.fencing.Fence(ctx, req.GetVolumeId(), req.GetEpoch()); err != nil {
		return nil, err
	}
	return &epochv1.FenceResponse{}, nil
}
