package csi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// NodePublishVolume shows the staged volume to a pod: a bind mount of the
// staging directory, or of the device file of a block volume.
func (s *Server) NodePublishVolume(_ context.Context, req *csispec.NodePublishVolumeRequest) (*csispec.NodePublishVolumeResponse, error) {
	if err := s.publish(req); err != nil {
		return nil, fmt.Errorf("publish volume %q on %q: %w", req.GetVolumeId(), req.GetTargetPath(), err)
	}
	return &csispec.NodePublishVolumeResponse{}, nil
}

func (s *Server) publish(req *csispec.NodePublishVolumeRequest) error {
	id, staging, target := req.GetVolumeId(), req.GetStagingTargetPath(), req.GetTargetPath()
	if err := checkTarget(id, "staging target path", staging, "target path", target); err != nil {
		return err
	}
	c, err := csiserver.ParseCapability(req.GetVolumeCapability())
	if err != nil {
		return err
	}
	ro := c.ReadOnly || req.GetReadonly()
	source := staging
	if c.Mode == provisioner.Block {
		source = blockFile(staging, id)
	}
	if _, mounted, err := s.mounts.at(source); err != nil || !mounted {
		if err == nil {
			err = fmt.Errorf("the volume is not staged on %s: %w", source, provisioner.ErrPrecondition)
		}
		return err
	}
	done, err := s.alreadyPublished(source, target, c.Mode, ro)
	if err != nil || done {
		return err
	}
	if c.Access == provisioner.ReadWriteOncePod {
		if err := s.soleTarget(source, target, c.Mode); err != nil {
			return err
		}
	}
	return s.bind(source, target, c.Mode, ro)
}

// alreadyPublished says whether source is bound to target as asked. A dead
// mount there is cleared away.
func (s *Server) alreadyPublished(source, target string, mode provisioner.VolumeMode, ro bool) (bool, error) {
	mp, mounted, err := s.mounts.at(target)
	if err != nil || !mounted {
		return false, err
	}
	number := s.o.Devices.Below
	if mode == provisioner.Block {
		number = s.o.Devices.Number
	}
	want, wantErr := number(source)
	have, haveErr := number(target)
	switch {
	case wantErr != nil:
		return false, fmt.Errorf("which device is staged: %w", wantErr)
	case haveErr != nil || have != want:
		if haveErr == nil && s.mounts.dead(target, mp) == nil {
			return false, fmt.Errorf("%s is mounted there already: %w", mp.Device, provisioner.ErrExists)
		}
		return false, s.mounts.clear(target)
	case readOnly(mp) != ro && mode == provisioner.Filesystem && !s.stagedReadOnly(source):
		return false, fmt.Errorf("it is published there with read-only %t, asked was %t: %w", readOnly(mp), ro, provisioner.ErrExists)
	}
	return true, nil
}

// soleTarget checks that the volume is shown nowhere but at source and target:
// CSI spec "NodePublishVolume", SINGLE_NODE_SINGLE_WRITER.
func (s *Server) soleTarget(source, target string, mode provisioner.VolumeMode) error {
	staged, _, err := s.mounts.at(source)
	if err != nil {
		return err
	}
	list, err := s.o.Mounter.List()
	if err != nil {
		return fmt.Errorf("read the mount table: %w", err)
	}
	for _, mp := range list {
		if mp.Device != staged.Device || mp.Path == staged.Path || mp.Path == target {
			continue
		}
		if mode == provisioner.Block && !s.sameNumber(source, mp.Path) {
			continue
		}
		return fmt.Errorf("the volume is for one pod alone (ReadWriteOncePod) and is shown on %s already: %w", mp.Path, provisioner.ErrInUse)
	}
	return nil
}

// sameNumber says whether both paths are the same block device.
func (s *Server) sameNumber(a, b string) bool {
	x, errX := s.o.Devices.Number(a)
	y, errY := s.o.Devices.Number(b)
	return errX == nil && errY == nil && x == y
}

// stagedReadOnly says whether the staged file system is itself read-only, so
// that every publish of it is.
func (s *Server) stagedReadOnly(staging string) bool {
	mp, mounted, err := s.mounts.at(staging)
	return err == nil && mounted && readOnly(mp)
}

func (s *Server) bind(source, target string, mode provisioner.VolumeMode, ro bool) error {
	if err := makeTarget(target, mode); err != nil {
		return err
	}
	options := []string{"bind"}
	if ro {
		// mount-utils binds first and remounts read-only after, as one
		// mount(2) cannot do both.
		options = append(options, "ro")
	}
	if err := s.o.Mounter.Mount(source, target, "", options); err != nil {
		// A bind whose remount failed would be writable: take it back.
		if undo := s.mounts.clear(target); undo != nil {
			return fmt.Errorf("bind %s: %w; and take it back: %w", source, err, undo)
		}
		return fmt.Errorf("bind %s: %w", source, err)
	}
	return nil
}

func makeTarget(target string, mode provisioner.VolumeMode) error {
	if mode == provisioner.Filesystem {
		if err := os.MkdirAll(target, 0o750); err != nil {
			return fmt.Errorf("make the target directory: %w", err)
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return fmt.Errorf("make the directory of the target: %w", err)
	}
	return touch(target)
}

// NodeUnpublishVolume undoes NodePublishVolume and removes the target, also if
// the device is dead. What is not published is success.
func (s *Server) NodeUnpublishVolume(_ context.Context, req *csispec.NodeUnpublishVolumeRequest) (*csispec.NodeUnpublishVolumeResponse, error) {
	id, target := req.GetVolumeId(), req.GetTargetPath()
	err := checkTarget(id, "target path", target)
	if err == nil {
		err = s.mounts.clear(target)
	}
	if err == nil {
		err = remove(target)
	}
	if err != nil {
		return nil, fmt.Errorf("unpublish volume %q from %q: %w", id, target, err)
	}
	return &csispec.NodeUnpublishVolumeResponse{}, nil
}
