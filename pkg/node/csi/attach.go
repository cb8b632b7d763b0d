package csi

import (
	"context"
	"errors"
	"fmt"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// attach asks for the volume, waits until this node has it, and returns what
// ControllerPublishVolume would have returned.
func (s *Server) attach(ctx context.Context, req *csispec.NodeStageVolumeRequest, c csiserver.Capability) (map[string]string, error) {
	if err := csiserver.Unshared(c); err != nil && (s.o.Shares == nil || !s.o.Shares(req.GetVolumeContext())) {
		return nil, err
	}
	a, err := s.o.Attachments.Attach(ctx, provisioner.AttachSpec{
		VolumeID: req.GetVolumeId(), Node: s.o.NodeID, ReadOnly: c.ReadOnly,
		AccessModes: []provisioner.AccessMode{c.Access}, VolumeContext: req.GetVolumeContext(),
	})
	return a.PublishContext, err
}

// undo gives the volume back after a stage that failed for good: the kubelet
// takes a final error to mean that nothing was left behind, and asks for no
// unstage. While something of the volume is mounted, or it cannot be given
// back now, the error is made one of the uncertain ones, after which it does.
func (s *Server) undo(ctx context.Context, id, staging string, failure error) error {
	if failure == nil || provisioner.Uncertain(failure) {
		return failure
	}
	for _, path := range []string{staging, blockFile(staging, id)} {
		if mp, mounted, err := s.mounts.at(path); err != nil || mounted {
			return fmt.Errorf("%v; %s is mounted, so the volume stays attached until it is unstaged: %w", failure, mp.Path, provisioner.ErrBusy)
		}
	}
	if err := s.release(ctx, id); err != nil {
		return fmt.Errorf("%v; and give the volume back: %v: %w", failure, err, provisioner.ErrBusy)
	}
	return failure
}

// release closes the device and, where this node has asked for the volume,
// gives it back. Both are repeatable; what is closed or gone is success.
func (s *Server) release(ctx context.Context, id string) error {
	dev, err := s.o.Host.Lookup(ctx, id)
	if errors.Is(err, provisioner.ErrNotFound) {
		dev.Name = "" // the platform may still have something to forget
	} else if err != nil {
		return err
	}
	if err := s.o.Host.Close(ctx, id, dev.Name); err != nil || s.o.Attachments == nil {
		return err
	}
	err = s.o.Attachments.Detach(ctx, id, s.o.NodeID)
	if errors.Is(err, provisioner.ErrNotFound) {
		return nil
	}
	return err
}
