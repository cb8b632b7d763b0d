package csi

import (
	"context"
	"fmt"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/csiserver"
)

// Usage is how full a file system is.
type Usage struct {
	TotalBytes, FreeBytes, UsedBytes    int64
	TotalInodes, FreeInodes, UsedInodes int64
}

// Usage implements Devices by statfs(2). Free is what pods may have: blocks that
// are kept for root are neither free nor used.
func (HostDevices) Usage(path string) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Usage{}, fmt.Errorf("measure the file system on %s: %w", path, err)
	}
	return Usage{
		TotalBytes: int64(st.Blocks) * st.Bsize, FreeBytes: int64(st.Bavail) * st.Bsize, UsedBytes: int64(st.Blocks-st.Bfree) * st.Bsize,
		TotalInodes: int64(st.Files), FreeInodes: int64(st.Ffree), UsedInodes: int64(st.Files - st.Ffree),
	}, nil
}

// Size implements Devices.
func (HostDevices) Size(path string) (int64, error) { return hostdev.Size(path) }

// NodeGetVolumeStats tells how full the file system of a volume is, or how
// large its device.
func (s *Server) NodeGetVolumeStats(_ context.Context, req *csispec.NodeGetVolumeStatsRequest) (*csispec.NodeGetVolumeStatsResponse, error) {
	usage, err := s.stats(req)
	if err != nil {
		return nil, fmt.Errorf("measure volume %q on %q: %w", req.GetVolumeId(), req.GetVolumePath(), err)
	}
	return &csispec.NodeGetVolumeStatsResponse{Usage: usage}, nil
}

func (s *Server) stats(req *csispec.NodeGetVolumeStatsRequest) ([]*csispec.VolumeUsage, error) {
	path := req.GetVolumePath()
	if err := csiserver.Require("volume id", req.GetVolumeId(), "volume path", path); err != nil {
		return nil, err
	}
	if _, err := s.mountOf(path); err != nil {
		return nil, err
	}
	if s.isDevice(path) {
		size, err := s.o.Devices.Size(path)
		if err != nil {
			return nil, err
		}
		return []*csispec.VolumeUsage{{Unit: csispec.VolumeUsage_BYTES, Total: size}}, nil
	}
	u, err := s.o.Devices.Usage(path)
	if err != nil {
		return nil, err
	}
	return []*csispec.VolumeUsage{
		{Unit: csispec.VolumeUsage_BYTES, Total: u.TotalBytes, Available: u.FreeBytes, Used: u.UsedBytes},
		{Unit: csispec.VolumeUsage_INODES, Total: u.TotalInodes, Available: u.FreeInodes, Used: u.UsedInodes},
	}, nil
}
