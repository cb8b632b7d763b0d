package endpoint

import (
	"context"
	"fmt"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/node/pods/ask"
	"github.com/moor-storage/moor/pkg/node/pods/show"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// NodePublishVolume has the volume staged for the pod, and shows it at the target. What it waited for when
// its time was over is told to the user of the pod; the next call goes on.
func (s *Server) NodePublishVolume(ctx context.Context, req *csispec.NodePublishVolumeRequest) (*csispec.NodePublishVolumeResponse, error) {
	r, err := parse(req)
	if err == nil {
		err = s.publish(ctx, r)
	}
	if err != nil {
		return nil, fmt.Errorf("volume %q: %w", req.GetVolumeId(), err)
	}
	return &csispec.NodePublishVolumeResponse{}, nil
}

func (s *Server) publish(ctx context.Context, r request) error {
	ctx, cancel := ask.Bounded(ctx, s.o.Wait)
	defer cancel()
	pv, err := s.volume(ctx, r)
	if err != nil {
		return err
	}
	staging, err := s.stagings.Ensure(ctx, s.wanted(r, pv.Name), func(ctx context.Context) error { return s.mayStage(ctx, r, pv.Name) })
	if err != nil {
		return err
	}
	staging, err = s.stagings.Staged(ctx, staging)
	if err != nil {
		return err
	}
	w := show.Want{Directory: staging.Status.Directory, Target: r.target, Mode: r.mode, ReadOnly: r.readOnly}
	if err := s.o.Targets.Show(w); err != nil {
		// Whatever it is: after other errors the kubelet would not undo what was done for it.
		return fmt.Errorf("show it at %s: %v: %w", r.target, err, provisioner.ErrUnavailable)
	}
	return nil
}

// NodeUnpublishVolume takes the volume from the target, and has it unstaged. What is not published is
// success.
func (s *Server) NodeUnpublishVolume(ctx context.Context, req *csispec.NodeUnpublishVolumeRequest) (*csispec.NodeUnpublishVolumeResponse, error) {
	id, target := req.GetVolumeId(), req.GetTargetPath()
	err := csiserver.Require("volume id", id, "target path", target)
	if err == nil {
		err = s.unpublish(ctx, id, target)
	}
	if err != nil {
		return nil, fmt.Errorf("volume %q: %w", id, err)
	}
	return &csispec.NodeUnpublishVolumeResponse{}, nil
}

func (s *Server) unpublish(ctx context.Context, id, target string) error {
	ctx, cancel := ask.Bounded(ctx, s.o.Wait)
	defer cancel()
	if err := s.o.Targets.Hide(target); err != nil {
		return fmt.Errorf("take it from %s: %w", target, err)
	}
	stagings, err := s.at(ctx, id, target)
	if err != nil {
		return err
	}
	for i := range stagings {
		if err := s.stagings.Remove(ctx, &stagings[i]); err != nil {
			return err
		}
	}
	return nil
}
