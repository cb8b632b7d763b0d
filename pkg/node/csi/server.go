// Package csi is the CSI node service: it opens the device of a volume,
// makes a file system on it if it is blank, and mounts it where the kubelet
// asks, as a file system or as a raw block device.
//
// It keeps nothing in memory: the mount table and the devices are the truth,
// so a restart between any two calls is harmless. It never finds a device by
// itself, which provisioner.Host does, and never decides what may be formatted,
// which internal/hostdev does.
package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// defaultMaxVolumes is how many volumes a node takes if neither a flag nor the
// virtual functions say otherwise; as DPF.
const defaultMaxVolumes = 30

// Formatter puts a file system on a device; *hostdev.Formatter is the real one.
type Formatter interface {
	// Ensure makes the file system if the device is blank; see hostdev.
	Ensure(ctx context.Context, path, fsType string, readOnly bool) (made bool, err error)
	// Check repairs it before a mount for writing; see hostdev.
	Check(ctx context.Context, path, fsType string) error
	// Grow lets it have the whole device, mounted or not; see hostdev.
	Grow(ctx context.Context, path, fsType, mounted string) (grown bool, err error)
}

// Options is what the service works on.
type Options struct {
	// NodeID is the name of this node in CSI; required.
	NodeID string
	// Host opens devices; required.
	Host provisioner.Host
	// Attachments, if there are any, give this node the volume at NodeStage
	// and take it back at NodeUnstage; nil: the controller has published it.
	Attachments provisioner.Attachments
	// Mounter, Devices and Formatter are the machine; required.
	Mounter   Mounter
	Devices   Devices
	Formatter Formatter
	// Ephemeral makes volumes that a pod describes itself, and that go with it; nil:
	// there are none.
	Ephemeral provisioner.Ephemeral
	// MaxVolumes is how many volumes the node takes; 0 asks Functions.
	MaxVolumes int64
	// Functions counts the functions that can hold a volume each; nil, or
	// a count of 0, means 30 volumes.
	Functions func() (int64, error)
	// Rescan reads the sizes of devices again; nil: volumes do not grow.
	Rescan provisioner.Rescan
	// Storage returns nil if the storage can be reached; nil: not known.
	Storage func(context.Context) error
	// Shares says from a volume's context whether it is a file system that the
	// platform shares, which several nodes may write; nil: none is.
	Shares func(volumeContext map[string]string) bool
	// SharedType is the type such file systems are mounted as; "" is
	// DefaultSharedType.
	SharedType string
	// Topology says where this node is, or that this is not known yet; nil:
	// volumes are reached from anywhere.
	Topology func() (provisioner.Place, error)
}

// Server is the CSI node service.
type Server struct {
	csispec.UnimplementedNodeServer
	o      Options
	mounts mounts
}

// New makes the service.
func New(o Options) *Server {
	o.SharedType = cmp.Or(o.SharedType, DefaultSharedType)
	return &Server{o: o, mounts: mounts{m: o.Mounter, d: o.Devices}}
}

// NodeGetInfo names the node and says how many volumes it takes.
func (s *Server) NodeGetInfo(context.Context, *csispec.NodeGetInfoRequest) (*csispec.NodeGetInfoResponse, error) {
	n := s.o.MaxVolumes
	if n <= 0 && s.o.Functions != nil {
		var err error
		if n, err = s.o.Functions(); err != nil {
			return nil, fmt.Errorf("count the functions of node %q: %w", s.o.NodeID, err)
		}
	}
	if n <= 0 {
		n = defaultMaxVolumes
	}
	info := &csispec.NodeGetInfoResponse{NodeId: s.o.NodeID, MaxVolumesPerNode: n}
	if s.o.Topology != nil {
		place, err := s.o.Topology()
		if err != nil {
			return nil, fmt.Errorf("find out where node %q is: %w", s.o.NodeID, err)
		}
		info.AccessibleTopology = &csispec.Topology{Segments: place}
	}
	return info, nil
}

// NodeGetCapabilities lists what this node can do.
func (s *Server) NodeGetCapabilities(context.Context, *csispec.NodeGetCapabilitiesRequest) (*csispec.NodeGetCapabilitiesResponse, error) {
	resp := &csispec.NodeGetCapabilitiesResponse{}
	types := []csispec.NodeServiceCapability_RPC_Type{
		csispec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csispec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csispec.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csispec.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
	}
	if s.o.Rescan != nil {
		types = append(types, csispec.NodeServiceCapability_RPC_EXPAND_VOLUME)
	}
	if s.o.Storage != nil {
		types = append(types, csispec.NodeServiceCapability_RPC_GET_STORAGE_HEALTH)
	}
	for _, t := range types {
		resp.Capabilities = append(resp.Capabilities, &csispec.NodeServiceCapability{
			Type: &csispec.NodeServiceCapability_Rpc{Rpc: &csispec.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return resp, nil
}

// blockFile is where a block volume is staged: a file in the staging directory.
func blockFile(staging, volumeID string) string { return filepath.Join(staging, volumeID) }

// checkTarget checks the names that become paths: a volume id with a slash
// would lead out of the staging directory.
func checkTarget(volumeID string, namesAndPaths ...string) error {
	if err := csiserver.Require(append([]string{"volume id", volumeID}, namesAndPaths...)...); err != nil {
		return err
	}
	if volumeID != filepath.Base(volumeID) || volumeID == "." || volumeID == ".." {
		return csiserver.Invalid("volume id %q cannot be a file name", volumeID)
	}
	for i := 1; i < len(namesAndPaths); i += 2 {
		if !filepath.IsAbs(namesAndPaths[i]) {
			return csiserver.Invalid("%s %q is not absolute", namesAndPaths[i-1], namesAndPaths[i])
		}
	}
	return nil
}

// deviceError adds the platform's kind to an error of package hostdev.
func deviceError(err error) error {
	for _, row := range []struct{ from, to error }{
		{hostdev.ErrForeign, provisioner.ErrPrecondition},
		{hostdev.ErrBlankReadOnly, provisioner.ErrPrecondition},
		{hostdev.ErrBusy, provisioner.ErrBusy},
		{hostdev.ErrAbsent, provisioner.ErrUnavailable},
		{errors.ErrUnsupported, provisioner.ErrInvalid},
	} {
		if errors.Is(err, row.from) {
			return fmt.Errorf("%w: %w", err, row.to)
		}
	}
	return err
}
