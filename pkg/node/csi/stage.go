package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/internal/kubelet"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// NodeStageVolume opens the volume and mounts what it is on the staging directory,
// or binds its device to a file in there if it is a block volume.
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
	if err := s.soleStaging(ctx, id, stagedOn(staging, id, c.Mode), c.Mode); err != nil {
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
	what, err := s.contentOf(dev, c.Mode)
	if err == nil {
		err = what.refuses(c)
	}
	if err != nil {
		return err
	}
	return s.place(ctx, what, stagedOn(staging, id, c.Mode), c)
}

// soleStaging refuses a volume that is staged on another path of this node: the unstage of one path closes
// the volume. It is asked before anything is done, so that nothing has to be undone, and not of a path on
// which something is mounted.
func (s *Server) soleStaging(ctx context.Context, id, path string, mode provisioner.VolumeMode) error {
	if _, mounted, err := s.mounts.at(path); err != nil || mounted {
		return err
	}
	other, err := s.stagedBeside(ctx, id, path, mode)
	if err != nil || other == "" {
		return err
	}
	return fmt.Errorf("the volume is staged on %s already: unstage it there first: %w", other, provisioner.ErrPrecondition)
}

// stagedBeside is where else than on path an open volume is staged; empty if it is not. What is of no use
// any more does not count, nor what a kubelet shows to pods.
func (s *Server) stagedBeside(ctx context.Context, id, path string, mode provisioner.VolumeMode) (string, error) {
	dev, err := s.o.Host.Lookup(ctx, id)
	switch {
	case errors.Is(err, provisioner.ErrNotFound):
		return "", nil
	case err != nil:
		return "", err
	case dev.Path+dev.Tag+dev.Directory == "":
		return "", nil // it has gone, and so has what it was mounted as
	}
	what, err := s.contentOf(dev, mode)
	if err != nil {
		return "", err
	}
	list, err := s.o.Mounter.List()
	if err != nil {
		return "", fmt.Errorf("read the mount table: %w", err)
	}
	for _, mp := range list {
		if _, ofPod := kubelet.Parse(mp.Path); ofPod || mp.Path == path || !what.stages(path, mp, list) || s.mounts.broken(mp.Path, mp) != nil {
			continue
		}
		// What cannot be compared is something else that has a like name.
		if same, err := what.isOn(mp.Path, mp); err == nil && same {
			return mp.Path, nil
		}
	}
	return "", nil
}

// stagedOn is where a volume is staged: the staging directory, or a file in it
// for a block volume.
func stagedOn(staging, id string, mode provisioner.VolumeMode) string {
	if mode == provisioner.Block {
		return blockFile(staging, id)
	}
	return staging
}

// place mounts what a volume is on path, unless that is done. A mount there that is of no
// use, left by a device or directory that is gone or given up by the kernel, is cleared
// away; a live one of something else is an error.
func (s *Server) place(ctx context.Context, what content, path string, c csiserver.Capability) error {
	mp, mounted, err := s.mounts.at(path)
	if err != nil {
		return err
	}
	if mounted {
		same, err := what.isOn(path, mp)
		switch {
		case s.mounts.broken(path, mp) != nil:
			if err := s.mounts.clear(path); err != nil {
				return err
			}
		case err != nil:
			return err
		case same:
			return nil
		default:
			return fmt.Errorf("%s is mounted there already, not %s: unstage that volume first: %w", mp.Device, what, provisioner.ErrPrecondition)
		}
	}
	if err := makeTarget(path, c.Mode); err != nil {
		return err
	}
	if err := what.mount(ctx, path, c); err != nil {
		return err
	}
	return s.fresh(path)
}

// fresh takes a mount back that shows the file system of before, which the kernel has given
// up: it holds that while any mount of it is left, in a container too, or any open file.
func (s *Server) fresh(path string) error {
	mp, mounted, err := s.mounts.at(path)
	if err != nil || !mounted {
		return err
	}
	why := hostdev.GivenUp(mp.Opts, mp.Super)
	if why == "" {
		return nil
	}
	if err := s.mounts.clear(path); err != nil {
		return err
	}
	return fmt.Errorf("mount %s anew: %s, and holds it until all that use it have ended: delete the pods that have the volume on this node; it is tried again: %w",
		mp.Device, why, provisioner.ErrBusy)
}

// readers says whether the volume is for reading alone, by its access mode or by
// its mount options.
func readers(c csiserver.Capability) bool { return c.ReadOnly || slices.Contains(c.MountFlags, "ro") }

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

// NodeUnstageVolume undoes NodeStageVolume, also if the device is dead or gone.
// What is not staged is success; what is staged on another path stays open for that.
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
	for _, mode := range []provisioner.VolumeMode{provisioner.Filesystem, provisioner.Block} {
		if other, err := s.stagedBeside(ctx, id, stagedOn(staging, id, mode), mode); err != nil || other != "" {
			return err
		}
	}
	return s.release(ctx, id)
}
