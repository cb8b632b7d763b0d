package csi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// NodeExpandVolume has the size of the device read again, and lets the file system
// on it, if there is one, have it all.
func (s *Server) NodeExpandVolume(ctx context.Context, req *csispec.NodeExpandVolumeRequest) (*csispec.NodeExpandVolumeResponse, error) {
	size, err := s.expand(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("expand volume %q on %q: %w", req.GetVolumeId(), req.GetVolumePath(), err)
	}
	return &csispec.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

func (s *Server) expand(ctx context.Context, req *csispec.NodeExpandVolumeRequest) (int64, error) {
	if s.o.Rescan == nil {
		return 0, fmt.Errorf("volumes of this driver do not grow: %w", provisioner.ErrUnsupported)
	}
	if err := csiserver.Require("volume id", req.GetVolumeId(), "volume path", req.GetVolumePath()); err != nil {
		return 0, err
	}
	mp, err := s.mountOf(req.GetVolumePath())
	if err != nil {
		return 0, err
	}
	want := req.GetCapacityRange().GetRequiredBytes()
	dev, err := s.o.Host.Lookup(ctx, req.GetVolumeId())
	switch {
	case err != nil && !errors.Is(err, provisioner.ErrNotFound):
		return 0, err
	case dev.Directory != "": // the file system under it is the platform's
		return s.o.Rescan.Rescan(ctx, req.GetVolumeId(), want)
	case s.shared(req, mp):
		return want, nil
	}
	return s.expandDevice(ctx, req, mp)
}

// expandDevice has the size of a block device read again, and lets the file system
// that this service has made on it have it all.
func (s *Server) expandDevice(ctx context.Context, req *csispec.NodeExpandVolumeRequest, mp Mount) (int64, error) {
	size, err := s.rescan(ctx, req, mp)
	if err != nil {
		return 0, err
	}
	if !slices.Contains(csiserver.FSTypes, mp.Type) || req.GetVolumeCapability().GetBlock() != nil {
		return size, nil // a device file, listed under what it lies on
	}
	if s.isDevice(req.GetVolumePath()) {
		return size, nil
	}
	if readOnly(mp) {
		return 0, fmt.Errorf("it is mounted read-only, and a file system grows by writing: %w", provisioner.ErrPrecondition)
	}
	grown, err := s.o.Formatter.Grow(ctx, mp.Device, mp.Type, mp.Path)
	if errors.Is(err, hostdev.ErrPrivilege) {
		return 0, fmt.Errorf("%w: %w", err, provisioner.ErrPrecondition)
	}
	if err != nil {
		return 0, deviceError(err)
	}
	if grown {
		logr.FromContextOrDiscard(ctx).Info("the file system grew", "volume", req.GetVolumeId(), "device", mp.Device)
	}
	return size, nil
}

// shared says whether what is mounted is a file system that the platform shares:
// its source is a tag and not a file, and the platform sees to its size.
func (s *Server) shared(req *csispec.NodeExpandVolumeRequest, mp Mount) bool {
	isDevice := s.isDevice(req.GetVolumePath())
	return !isDevice && req.GetVolumeCapability().GetBlock() == nil &&
		!slices.Contains(csiserver.FSTypes, mp.Type) && !filepath.IsAbs(mp.Device)
}

// rescan has the size of the device read again. After a restart the platform may
// not know which device a volume has, since no call before this one tells it: then
// the device that is mounted is asked.
func (s *Server) rescan(ctx context.Context, req *csispec.NodeExpandVolumeRequest, mp Mount) (int64, error) {
	want := req.GetCapacityRange().GetRequiredBytes()
	size, err := s.o.Rescan.Rescan(ctx, req.GetVolumeId(), want)
	if !errors.Is(err, provisioner.ErrNotFound) {
		return size, err
	}
	device := req.GetVolumePath()
	if !s.isDevice(device) {
		device = mp.Device
	}
	if size, err = s.o.Devices.Size(device); err != nil {
		return 0, err
	}
	if size < want {
		return 0, fmt.Errorf("device %s has %d bytes, not %d yet: %w", device, size, want, provisioner.ErrUnavailable)
	}
	return size, nil
}

// mountOf is the mount on a path where a volume is staged or published;
// ErrNotFound if there is none.
func (s *Server) mountOf(path string) (Mount, error) {
	mp, mounted, err := s.mounts.at(path)
	if err == nil && !mounted {
		err = fmt.Errorf("nothing is mounted on %s: %w", path, provisioner.ErrNotFound)
	}
	return mp, err
}

// isDevice reports whether there is a block device at path.
func (s *Server) isDevice(path string) bool {
	_, err := s.o.Devices.Number(path)
	return err == nil
}
