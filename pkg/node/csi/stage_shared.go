package csi

import (
	"fmt"
	"os"
	"slices"

	"k8s.io/mount-utils"

	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// DefaultSharedType is the kernel's name of virtio-fs.
const DefaultSharedType = "virtiofs"

// stageShared mounts a file system that the platform shares, by its tag. It is
// mounted once a node and bound to each pod, where DPF mounts it for each.
func (s *Server) stageShared(tag, staging string, c csiserver.Capability) error {
	mp, mounted, err := s.mounts.at(staging)
	if err != nil {
		return err
	}
	if mounted {
		switch dead := s.mounts.dead(staging, mp); {
		case dead != nil:
			if err := s.mounts.clear(staging); err != nil {
				return err
			}
		case mp.Device == tag:
			return nil
		default:
			return fmt.Errorf("%s is mounted there already, not %s: unstage that volume first: %w", mp.Device, tag, provisioner.ErrPrecondition)
		}
	}
	if err := os.MkdirAll(staging, 0o750); err != nil && !mount.IsCorruptedMnt(err) {
		return fmt.Errorf("make the staging directory: %w", err)
	}
	ro := c.ReadOnly || slices.Contains(c.MountFlags, "ro")
	if err := s.o.Mounter.Mount(tag, staging, s.o.SharedType, mountOptions(c.MountFlags, ro)); err != nil {
		return fmt.Errorf("mount %s as %s: %w", tag, s.o.SharedType, err)
	}
	return nil
}
