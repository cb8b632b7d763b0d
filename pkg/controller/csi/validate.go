package csi

import (
	"context"
	"fmt"
	"maps"
	"slices"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// ValidateVolumeCapabilities says whether the volume is what the request
// describes. A difference is no error: it is an answer without Confirmed and
// with a message that names it.
func (s *Server) ValidateVolumeCapabilities(ctx context.Context, req *csispec.ValidateVolumeCapabilitiesRequest) (*csispec.ValidateVolumeCapabilitiesResponse, error) {
	id := req.GetVolumeId()
	if err := csiserver.Require("volume id", id); err != nil {
		return nil, fmt.Errorf("validate volume: %w", err)
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, fmt.Errorf("validate volume %q: %w", id, csiserver.Invalid("volume capabilities are missing"))
	}
	v, err := s.o.Volumes.Get(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("validate volume %q: %w", id, err)
	}
	if why := s.differs(req, v); why != "" {
		return &csispec.ValidateVolumeCapabilitiesResponse{Message: why}, nil
	}
	return &csispec.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csispec.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeContext:      req.GetVolumeContext(),
			VolumeCapabilities: req.GetVolumeCapabilities(),
			Parameters:         req.GetParameters(),
		},
	}, nil
}

// differs says in what the volume is not what the request describes; empty if
// in nothing.
func (s *Server) differs(req *csispec.ValidateVolumeCapabilitiesRequest, v provisioner.Volume) string {
	caps, err := csiserver.ParseCapabilities(req.GetVolumeCapabilities())
	if err != nil {
		return err.Error()
	}
	shared := s.o.Shares != nil && v.Mode == provisioner.Filesystem
	if err := s.usable(caps, shared); err != nil {
		return err.Error()
	}
	if mode := s.platformMode(caps[0].Mode, shared); v.Mode != "" && v.Mode != mode {
		return fmt.Sprintf("the volume has mode %s, asked was %s", v.Mode, mode)
	}
	for _, m := range csiserver.AccessModes(caps) {
		if len(v.AccessModes) > 0 && !slices.Contains(v.AccessModes, m) {
			return fmt.Sprintf("the volume has access modes %v, asked was %s", v.AccessModes, m)
		}
	}
	if d := difference(req.GetVolumeContext(), v.Context); d != "" {
		return "volume context: " + d
	}
	return s.parametersDiffer(req.GetParameters(), v)
}

func (s *Server) parametersDiffer(asked map[string]string, v provisioner.Volume) string {
	if len(asked) == 0 {
		return ""
	}
	params, err := s.o.Normalize(platformsOwn(asked))
	if err != nil {
		return err.Error()
	}
	if d := difference(params, v.Parameters); d != "" {
		return "parameters: " + d
	}
	return ""
}

// difference names the first key, in order, on which asked and have disagree.
// A key that only one side knows is no difference: Kubernetes adds keys of its
// own, and a platform need not keep those that only matter at attach.
func difference(asked, have map[string]string) string {
	for _, k := range slices.Sorted(maps.Keys(asked)) {
		if h, known := have[k]; known && h != asked[k] {
			return fmt.Sprintf("%q is %q, the volume was made with %q", k, asked[k], h)
		}
	}
	return ""
}
