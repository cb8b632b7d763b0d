package csi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"k8s.io/mount-utils"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// NodeStageVolume opens the device of the volume and mounts it on the staging
// directory, or binds it to a file in there if it is a block volume.
func (s *Server) NodeStageVolume(ctx context.Context, req *csispec.NodeStageVolumeRequest) (*csispec.NodeStageVolumeResponse, error) {
	id, staging := req.GetVolumeId(), req.GetStagingTargetPath()
	if err := s.stage(ctx, req); err != nil {
		return nil, fmt.Errorf("stage volume %q on %q: %w", id, staging, err)
	}
	return &csispec.NodeStageVolumeResponse{}, nil
}

func (s *Server) stage(ctx context.Context, req *csispec.NodeStageVolumeRequest) error {
	id, staging := req.GetVolumeId(), req.GetStagingTargetPath()
	if err := checkTarget(id, "staging target path", staging); err != nil {
		return err
	}
	c, err := csiserver.ParseCapability(req.GetVolumeCapability())
	if err != nil {
		return err
	}
	if s.o.Attachments == nil {
		return s.openAndMount(ctx, req, c, req.GetPublishContext())
	}
	published, err := s.attach(ctx, req, c)
	if err == nil {
		err = s.openAndMount(ctx, req, c, published)
	}
	return s.undo(ctx, id, staging, err)
}

func (s *Server) openAndMount(ctx context.Context, req *csispec.NodeStageVolumeRequest, c csiserver.Capability, published map[string]string) error {
	id, staging := req.GetVolumeId(), req.GetStagingTargetPath()
	dev, err := s.o.Host.Open(ctx, provisioner.OpenSpec{
		VolumeID: id, Mode: c.Mode, AccessModes: []provisioner.AccessMode{c.Access},
		PublishContext: published, VolumeContext: req.GetVolumeContext(),
	})
	if err != nil {
		return err
	}
	if dev.Tag != "" {
		return s.stageShared(dev.Tag, staging, c)
	}
	if dev.Path == "" {
		return fmt.Errorf("the platform opened device %q, which has no file in /dev", dev.Name)
	}
	if err := os.MkdirAll(staging, 0o750); err != nil && !mount.IsCorruptedMnt(err) {
		return fmt.Errorf("make the staging directory: %w", err)
	}
	if c.Mode == provisioner.Block {
		return s.stageBlock(dev.Path, blockFile(staging, id))
	}
	return s.stageFilesystem(ctx, dev.Path, staging, c)
}

// stageFilesystem formats the device if it is blank and mounts it.
func (s *Server) stageFilesystem(ctx context.Context, device, staging string, c csiserver.Capability) error {
	done, err := s.alreadyStaged(device, staging)
	if err != nil || done {
		return err
	}
	ro := c.ReadOnly || slices.Contains(c.MountFlags, "ro")
	made, err := s.o.Formatter.Ensure(ctx, device, c.FSType, ro)
	if err != nil {
		return deviceError(err)
	}
	if made {
		logr.FromContextOrDiscard(ctx).Info("made a file system", "device", device, "type", c.FSType)
	}
	if !ro && !made {
		if err := s.o.Formatter.Check(ctx, device, c.FSType); err != nil {
			return deviceError(err)
		}
		if err := s.grow(ctx, device, c.FSType, ""); err != nil {
			return err
		}
	}
	if err := s.o.Mounter.Mount(device, staging, c.FSType, mountOptions(flags(c), ro)); err != nil {
		return fmt.Errorf("mount %s as %s: %w", device, c.FSType, err)
	}
	if !ro && !made {
		return s.grow(ctx, device, c.FSType, staging)
	}
	return nil
}

// grow lets a file system have a device that is larger than it: a copy into a
// larger volume, or one that grew while it was not in use. Some grow while they
// are mounted, some while they are not, so it is tried both ways; one that
// cannot grow is used as it is.
func (s *Server) grow(ctx context.Context, device, fsType, mounted string) error {
	grown, err := s.o.Formatter.Grow(ctx, device, fsType, mounted)
	if errors.Is(err, hostdev.ErrPrivilege) {
		logr.FromContextOrDiscard(ctx).Info("the file system stays smaller than its device", "device", device, "reason", err.Error())
		return nil
	}
	if err != nil {
		return deviceError(err)
	}
	if grown {
		logr.FromContextOrDiscard(ctx).Info("the file system grew", "device", device, "type", fsType)
	}
	return nil
}

// alreadyStaged says whether the device is mounted on staging. A dead mount
// there, left by a device that is gone, is cleared away; a live one of another
// device is an error.
func (s *Server) alreadyStaged(device, staging string) (bool, error) {
	mp, mounted, err := s.mounts.at(staging)
	if err != nil || !mounted {
		return false, err
	}
	same, err := s.mounts.sameDevice(staging, mp, device)
	if err == nil && same {
		return true, nil
	}
	if s.mounts.dead(staging, mp) != nil {
		return false, s.mounts.clear(staging)
	}
	if err != nil {
		return false, err
	}
	return false, fmt.Errorf("%s is mounted there already, not %s: unstage that volume first: %w", mp.Device, device, provisioner.ErrPrecondition)
}

// flags are those of the volume, with what its file system needs. A copy has the
// UUID of its source, and xfs mounts no second one with the same unless it is told
// not to compare (xfs(5), nouuid); ext4 never compares.
func flags(c csiserver.Capability) []string {
	if c.FSType == "xfs" {
		return append(slices.Clone(c.MountFlags), "nouuid")
	}
	return c.MountFlags
}

// mountOptions are the flags of the volume, with ro if it is to be read-only.
func mountOptions(flags []string, ro bool) []string {
	var out []string
	for _, f := range flags {
		if f != "" && !slices.Contains(out, f) && !(ro && f == "rw") {
			out = append(out, f)
		}
	}
	if ro && !slices.Contains(out, "ro") {
		out = append(out, "ro")
	}
	return out
}

// stageBlock binds the device file to file.
func (s *Server) stageBlock(device, file string) error {
	want, err := s.o.Devices.Number(device)
	if err != nil {
		return err
	}
	_, mounted, err := s.mounts.at(file)
	if err != nil {
		return err
	}
	if mounted {
		have, err := s.o.Devices.Number(file)
		if err == nil && have == want {
			return nil
		}
		if err == nil && s.o.Devices.Readable(file) == nil {
			return fmt.Errorf("another device is bound to %s: unstage that volume first: %w", file, provisioner.ErrPrecondition)
		}
		if err := s.mounts.clear(file); err != nil {
			return err
		}
	}
	if err := touch(file); err != nil {
		return err
	}
	if err := s.o.Mounter.Mount(device, file, "", []string{"bind"}); err != nil {
		return fmt.Errorf("bind %s to %s: %w", device, file, err)
	}
	return nil
}

// touch makes an empty file for a device to be bound on, if there is none.
func touch(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make %s: %w", file, err)
	}
	return f.Close()
}

// NodeUnstageVolume undoes NodeStageVolume, also if the device is dead or gone.
// What is not staged is success.
func (s *Server) NodeUnstageVolume(ctx context.Context, req *csispec.NodeUnstageVolumeRequest) (*csispec.NodeUnstageVolumeResponse, error) {
	id, staging := req.GetVolumeId(), req.GetStagingTargetPath()
	if err := s.unstage(ctx, id, staging); err != nil {
		return nil, fmt.Errorf("unstage volume %q from %q: %w", id, staging, err)
	}
	return &csispec.NodeUnstageVolumeResponse{}, nil
}

func (s *Server) unstage(ctx context.Context, id, staging string) error {
	if err := checkTarget(id, "staging target path", staging); err != nil {
		return err
	}
	file := blockFile(staging, id)
	if err := s.mounts.clear(file); err != nil {
		return err
	}
	if err := s.mounts.clear(staging); err != nil {
		return err
	}
	// The directory is the kubelet's; only our file in it goes.
	if err := remove(file); err != nil {
		return err
	}
	return s.release(ctx, id)
}
