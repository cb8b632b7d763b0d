package csi

import (
	"context"
	"fmt"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/pkg/csiserver"
)

// ControllerGetVolumeHealth says what is wrong with a volume.
func (s *Server) ControllerGetVolumeHealth(ctx context.Context, req *csispec.ControllerGetVolumeHealthRequest) (*csispec.ControllerGetVolumeHealthResponse, error) {
	id := req.GetVolumeId()
	if s.o.Health == nil {
		return nil, unsupported("look after volume %q", id)
	}
	if err := csiserver.Require("volume id", id); err != nil {
		return nil, fmt.Errorf("look after a volume: %w", err)
	}
	h, err := s.o.Health.Get(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("look after volume %q: %w", id, err)
	}
	return &csispec.ControllerGetVolumeHealthResponse{VolumeHealth: csiserver.VolumeHealth(h)}, nil
}

// ControllerListVolumeHealth returns a page of the volumes with which something
// is wrong.
func (s *Server) ControllerListVolumeHealth(ctx context.Context, req *csispec.ControllerListVolumeHealthRequest) (*csispec.ControllerListVolumeHealthResponse, error) {
	if s.o.Health == nil {
		return nil, unsupported("look after volumes")
	}
	page, err := listHealth.page(req.GetStartingToken(), req.GetMaxEntries())
	if err != nil {
		return nil, fmt.Errorf("look after volumes: %w", err)
	}
	all, next, err := s.o.Health.List(ctx, page)
	if err != nil {
		return nil, fmt.Errorf("look after volumes: %w", err)
	}
	resp := &csispec.ControllerListVolumeHealthResponse{NextToken: listHealth.token(next)}
	for _, h := range all {
		resp.Entries = append(resp.Entries, csiserver.VolumeHealth(h))
	}
	return resp, nil
}
