package endpoint

import (
	"cmp"
	"context"
	"fmt"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/node/pods/ask"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// reasonDied is the reason of a volume whose staging pod has died.
const reasonDied = "StagingPodDied"

// NodeGetVolumeStats tells how full the file system of a volume is, or how large its device. Of one whose
// staging pod has died nothing is asked: it may not answer.
func (s *Server) NodeGetVolumeStats(ctx context.Context, req *csispec.NodeGetVolumeStatsRequest) (*csispec.NodeGetVolumeStatsResponse, error) {
	id, path := req.GetVolumeId(), req.GetVolumePath()
	usage, err := s.usage(ctx, id, path)
	if err != nil {
		return nil, fmt.Errorf("measure volume %q at %q: %w", id, path, err)
	}
	return &csispec.NodeGetVolumeStatsResponse{Usage: usage}, nil
}

func (s *Server) usage(ctx context.Context, id, path string) ([]*csispec.VolumeUsage, error) {
	if err := csiserver.Require("volume id", id, "volume path", path); err != nil {
		return nil, err
	}
	all, err := s.at(ctx, id, path)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, fmt.Errorf("it is not published there: %w", provisioner.ErrNotFound)
	case broken(&all[0]):
		return nil, fmt.Errorf("%s: %w", ask.Words(&all[0]), provisioner.ErrUnavailable)
	}
	return s.o.Targets.Usage(path)
}

func broken(p *moorv1alpha1.PodStaging) bool {
	return p.Status.Phase == moorv1alpha1.PodStagingBroken
}

// NodeGetVolumeHealth says of a volume whose staging pod has died that it cannot be used, and why.
func (s *Server) NodeGetVolumeHealth(ctx context.Context, req *csispec.NodeGetVolumeHealthRequest) (*csispec.NodeGetVolumeHealthResponse, error) {
	id := req.GetVolumeId()
	problems, err := s.problems(ctx, id, req.GetVolumePublishPath())
	if err != nil {
		return nil, fmt.Errorf("find out the health of volume %q: %w", id, err)
	}
	return &csispec.NodeGetVolumeHealthResponse{VolumeHealth: csiserver.VolumeHealth(provisioner.VolumeHealth{VolumeID: id, Problems: problems})}, nil
}

// problems are those of a volume where it is published, or wherever pods of this node have it.
func (s *Server) problems(ctx context.Context, id, path string) ([]provisioner.Problem, error) {
	if err := csiserver.Require("volume id", id); err != nil {
		return nil, err
	}
	var list moorv1alpha1.PodStagingList
	if err := s.o.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("find what is staged here: %w", err)
	}
	var out []provisioner.Problem
	for i := range list.Items {
		p := &list.Items[i]
		at := cmp.Or(path, string(p.Spec.User.UID))
		if broken(p) && s.of(p, id, at) {
			out = append(out, provisioner.Problem{Severity: provisioner.Inaccessible, Reason: reasonDied, Message: ask.Words(p)})
		}
	}
	return out, nil
}
