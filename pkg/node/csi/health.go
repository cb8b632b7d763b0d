package csi

import (
	"context"
	"errors"
	"fmt"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// The reasons of problems that a node sees.
const (
	reasonNotOpen       = "DeviceNotOpen"
	reasonDeviceDead    = "DeviceDead"
	reasonDirectoryGone = "DirectoryGone"
	reasonMountDead     = "MountDead"
	reasonStorage       = "StorageUnreachable"
)

// NodeGetVolumeHealth says what is wrong with a volume as this node sees it: its
// device, and what is mounted on the paths that are named.
func (s *Server) NodeGetVolumeHealth(ctx context.Context, req *csispec.NodeGetVolumeHealthRequest) (*csispec.NodeGetVolumeHealthResponse, error) {
	id := req.GetVolumeId()
	if err := csiserver.Require("volume id", id); err != nil {
		return nil, fmt.Errorf("find out the health of a volume: %w", err)
	}
	problems, err := s.openProblems(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("find out the health of volume %q: %w", id, err)
	}
	for _, path := range []string{req.GetStagingTargetPath(), req.GetVolumePublishPath()} {
		if path == "" {
			continue
		}
		more, err := s.mountProblems(path)
		if err != nil {
			return nil, fmt.Errorf("find out the health of volume %q on %q: %w", id, path, err)
		}
		problems = append(problems, more...)
	}
	return &csispec.NodeGetVolumeHealthResponse{
		VolumeHealth: csiserver.VolumeHealth(provisioner.VolumeHealth{VolumeID: id, Problems: problems}),
	}, nil
}

func (s *Server) openProblems(ctx context.Context, id string) ([]provisioner.Problem, error) {
	dev, err := s.o.Host.Lookup(ctx, id)
	switch {
	case errors.Is(err, provisioner.ErrNotFound):
		return inaccessible(reasonNotOpen, "the volume is not open on this node"), nil
	case err != nil:
		return nil, err
	}
	what, err := s.contentOf(dev, dev.Mode)
	if err != nil {
		return nil, err
	}
	return what.problems(), nil
}

// Ready reports whether a new pod can have the volume on this node: its device answers, as far
// as is known. Which device that is was said when the volume was opened, and the platform may know it from
// a process before this one. Of a volume of which it does not, nothing will be known before a new pod has it
// opened, so none waits for that. It may take seconds where the device hangs.
func (s *Server) Ready(ctx context.Context, volume string) bool {
	dev, err := s.o.Host.Lookup(ctx, volume)
	if err != nil { // a device that was opened and is gone is absent, and not found for that
		return errors.Is(err, provisioner.ErrNotFound) && !errors.Is(err, hostdev.ErrAbsent)
	}
	what, err := s.contentOf(dev, dev.Mode)
	return err == nil && len(what.problems()) == 0
}

func (s *Server) mountProblems(path string) ([]provisioner.Problem, error) {
	mp, mounted, err := s.mounts.at(path)
	if err != nil || !mounted {
		return nil, err // what is not mounted yet has no mount to be wrong
	}
	broken := s.mounts.broken(path, mp)
	if broken == nil {
		return nil, nil
	}
	return inaccessible(reasonMountDead, "what is mounted on "+path+" is of no use any more: "+broken.Error()+
		"; a pod gets the volume back by being deleted and made anew: its containers alone do not"), nil
}

func inaccessible(reason, message string) []provisioner.Problem {
	return []provisioner.Problem{{Severity: provisioner.Inaccessible, Reason: reason, Message: message}}
}

// NodeGetStorageHealth says whether the storage can be reached from this node.
func (s *Server) NodeGetStorageHealth(ctx context.Context, _ *csispec.NodeGetStorageHealthRequest) (*csispec.NodeGetStorageHealthResponse, error) {
	if s.o.Storage == nil {
		return nil, fmt.Errorf("find out the health of the storage: this node cannot tell: %w", provisioner.ErrUnsupported)
	}
	resp := &csispec.NodeGetStorageHealthResponse{}
	if err := s.o.Storage(ctx); err != nil {
		resp.BackendHealth = []*csispec.NodeGetStorageHealthResponse_StorageBackendHealth{{
			Status: csispec.StorageHealthErrorType_STORAGE_UNREACHABLE, Reason: reasonStorage, Message: err.Error(),
		}}
	}
	return resp, nil
}
