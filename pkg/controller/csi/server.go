// Package csi is the CSI controller service, and the group controller service,
// over any storage platform: it parses a request, checks it, calls the
// platform, and answers. What the platform has no interface for is not announced.
//
// It holds no state and knows no vendor; what is special about a StorageClass
// is read by the platform. It returns plain errors: pkg/csiserver turns them
// into gRPC codes.
package csi

import (
	"fmt"
	"strings"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

const (
	// defaultBytes is the size of a volume that asks for none: 1 GiB, as DPF.
	defaultBytes = 1 << 30
	// maxNameBytes is the longest volume name: that of a Kubernetes object
	// (DNS-1123 subdomain).
	maxNameBytes = 253
	// reservedPrefix marks the parameters that the sidecars add.
	reservedPrefix = "csi.storage.k8s.io/"
)

// Options is what the service works on.
type Options struct {
	// Platform is what the service offers: without Attachments there is no
	// publish, and so on. Volumes is required.
	provisioner.Platform
	// Normalize writes the parameters of a StorageClass the way in which the
	// platform tells of them (provisioner.Volume.Parameters), or says what is
	// wrong with them; nil: as they are. The platform gets them in this form, in
	// which nothing is left out that has a default.
	Normalize func(map[string]string) (map[string]string, error)
	// BlockOnly is for platforms that show block devices and leave the file
	// system to the node service (NVMe): the platform is asked for a Block
	// volume, whatever the pod wants to see, and either mode is confirmed.
	BlockOnly bool
	// SharedFilesystem is true if the platform itself shares a file system
	// between nodes. Otherwise a volume that several nodes may write is
	// refused as a file system: ext4 and xfs on two nodes destroy it.
	SharedFilesystem bool
	// Shares reports whether a volume with these parameters, or with this
	// volume context, is a file system of the platform itself, whatever
	// BlockOnly and SharedFilesystem say of the others; nil: none is.
	Shares func(map[string]string) bool
	// DefaultBytes is the size of a volume that asks for none; 0 is 1 GiB.
	DefaultBytes int64
	// Topology is where every volume of the platform can be reached from; nil
	// is anywhere.
	Topology map[string]string
	// Places is true for a platform that chooses where a volume is reached from,
	// and whose volumes and snapshots tell.
	Places bool
	// NodeExpands is true if there is a node service, which has something to do
	// after a volume grew: look at the size of the device again, and let the
	// file system have it.
	NodeExpands bool
}

// Server is the CSI controller service and group controller service.
type Server struct {
	csispec.UnimplementedControllerServer
	csispec.UnimplementedGroupControllerServer
	o Options
}

// New makes the service.
func New(o Options) *Server {
	if o.Normalize == nil {
		o.Normalize = func(parameters map[string]string) (map[string]string, error) { return parameters, nil }
	}
	if o.DefaultBytes <= 0 {
		o.DefaultBytes = defaultBytes
	}
	return &Server{o: o}
}

// unsupported is the answer to a call that is not announced.
func unsupported(format string, args ...any) error {
	return fmt.Errorf(format+": this platform cannot do that: %w", append(args, provisioner.ErrUnsupported)...)
}

// platformsOwn returns the parameters without those that sidecars add
// (csi.storage.k8s.io/...).
func platformsOwn(in map[string]string) map[string]string {
	out := make(map[string]string, len(in))
	for k, v := range in {
		if !strings.HasPrefix(k, reservedPrefix) {
			out[k] = v
		}
	}
	return out
}

// usable refuses what no platform can do safely with caps. shared is what
// Options.Shares says of the volume.
func (s *Server) usable(caps []csiserver.Capability, shared bool) error {
	for _, c := range caps {
		if shared && c.Mode == provisioner.Block {
			return csiserver.Invalid("the volume is a file system of the platform: volumeMode Filesystem is wanted, or a StorageClass that shows block devices")
		}
		if err := csiserver.Unshared(c); err != nil && !s.o.SharedFilesystem && !shared {
			return err
		}
	}
	return nil
}

func (s *Server) shares(keys map[string]string) bool { return s.o.Shares != nil && s.o.Shares(keys) }

// platformMode is the mode in which the platform is asked for the volume.
func (s *Server) platformMode(m provisioner.VolumeMode, shared bool) provisioner.VolumeMode {
	if s.o.BlockOnly && !shared {
		return provisioner.Block
	}
	return m
}
