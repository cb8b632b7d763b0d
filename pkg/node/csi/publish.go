package csi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// NodePublishVolume shows the staged volume to a pod: a bind mount of the
// staging directory, or of the device file of a block volume.
func (s *Server) NodePublishVolume(ctx context.Context, req *csispec.NodePublishVolumeRequest) (*csispec.NodePublishVolumeResponse, error) {
	publish := s.publish
	if req.GetVolumeContext()[contextEphemeral] == "true" {
		publish = s.publishEphemeral
	}
	if err := publish(ctx, req); err != nil {
		return nil, fmt.Errorf("publish volume %q on %q: %w", req.GetVolumeId(), req.GetTargetPath(), err)
	}
	return &csispec.NodePublishVolumeResponse{}, nil
}

func (s *Server) publish(ctx context.Context, req *csispec.NodePublishVolumeRequest) error {
	id, staging, target := req.GetVolumeId(), req.GetStagingTargetPath(), req.GetTargetPath()
	if err := checkTarget(id, "staging target path", staging, "target path", target); err != nil {
		return err
	}
	c, err := csiserver.ParseCapability(req.GetVolumeCapability())
	if err != nil {
		return err
	}
	ro := readers(c) || req.GetReadonly()
	source := stagedOn(staging, id, c.Mode)
	staged, err := s.staged(ctx, req, source)
	if err != nil {
		return err
	}
	done, err := s.alreadyPublished(source, staged, target, c.Mode, ro)
	if err != nil || done {
		return err
	}
	if c.Access == provisioner.ReadWriteOncePod {
		if err := s.soleTarget(ctx, id, source, target, c.Mode); err != nil {
			return err
		}
	}
	if err := makeTarget(target, c.Mode); err != nil {
		return err
	}
	// A bind has none of the options of what is bound: without ro it could be
	// written, without nosuid be used against it.
	return s.mounts.bind(source, target, mountOptions(ofMounts(c.MountFlags), ro))
}

// staged is what is staged on source. The kubelet stages a volume once for all pods of the
// node, so a pod that comes before the last one has gone would be given what is staged
// although it is of no use any more: then it is staged anew, once no other pod has it. So
// is what the kubelet has staged, by its directory, and is not mounted: after a machine
// that went down uncleanly, or where that was interrupted.
func (s *Server) staged(ctx context.Context, req *csispec.NodePublishVolumeRequest, source string) (Mount, error) {
	mp, mounted, err := s.mounts.at(source)
	if err != nil {
		return Mount{}, err
	}
	why := fmt.Errorf("the volume is not staged on %s", source)
	if mounted {
		why = s.mounts.broken(source, mp)
	} else if _, gone := os.Lstat(req.GetStagingTargetPath()); gone != nil {
		return Mount{}, fmt.Errorf("%w: %w", why, provisioner.ErrPrecondition)
	}
	if why == nil {
		return mp, nil
	}
	logr.FromContextOrDiscard(ctx).Info("stage the volume anew", "volume", req.GetVolumeId(), "reason", why.Error())
	if err := s.unshown(mp, source, req.GetTargetPath()); err != nil {
		return Mount{}, fmt.Errorf("%w: %w", why, err)
	}
	_, err = s.NodeStageVolume(ctx, &csispec.NodeStageVolumeRequest{
		VolumeId: req.GetVolumeId(), StagingTargetPath: req.GetStagingTargetPath(), VolumeCapability: req.GetVolumeCapability(),
		PublishContext: req.GetPublishContext(), VolumeContext: req.GetVolumeContext(), Secrets: req.GetSecrets(),
	})
	if errors.Is(err, provisioner.ErrInvalid) {
		// It is no error of this request, which needs not carry what staging does.
		return Mount{}, fmt.Errorf("%w: it cannot be staged with what this request has: %s: %w", why, err.Error(), provisioner.ErrPrecondition)
	}
	if err != nil {
		return Mount{}, fmt.Errorf("%w: %w", why, err)
	}
	mp, _, err = s.mounts.at(source)
	return mp, err
}

// unshown checks that what is mounted on source is shown nowhere else but on target. A
// removed directory, whose disk others are on too, counts as shown nowhere.
func (s *Server) unshown(staged Mount, source, target string) error {
	if staged.Path == "" || strings.HasSuffix(staged.Root, deleted) {
		return nil
	}
	list, err := s.o.Mounter.List()
	if err != nil {
		return fmt.Errorf("read the mount table: %w", err)
	}
	for _, mp := range list {
		if mp.shows(staged) && mp.Path != source && mp.Path != target {
			return fmt.Errorf("%s still shows it: delete that pod, then the volume is staged anew: %w", mp.Path, provisioner.ErrBusy)
		}
	}
	return nil
}

// alreadyPublished says whether source is bound to target as asked. A dead
// mount there is cleared away.
func (s *Server) alreadyPublished(source string, staged Mount, target string, mode provisioner.VolumeMode, ro bool) (bool, error) {
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
	case haveErr != nil || have != want || mode == provisioner.Filesystem && mp.Root != staged.Root:
		if haveErr == nil && s.mounts.broken(target, mp) == nil {
			return false, fmt.Errorf("%s is mounted there already: %w", mp.Device, provisioner.ErrExists)
		}
		return false, s.mounts.clear(target)
	case readOnly(mp) != ro && mode == provisioner.Filesystem && !readOnly(staged):
		return false, fmt.Errorf("it is published there with read-only %t, asked was %t: %w", readOnly(mp), ro, provisioner.ErrExists)
	}
	return true, nil
}

// soleTarget checks that the volume is shown nowhere but at source and target, and
// where the platform itself has its directory: CSI spec "NodePublishVolume",
// SINGLE_NODE_SINGLE_WRITER.
func (s *Server) soleTarget(ctx context.Context, id, source, target string, mode provisioner.VolumeMode) error {
	dev, err := s.o.Host.Lookup(ctx, id)
	if err != nil && !errors.Is(err, provisioner.ErrNotFound) {
		return err
	}
	staged, _, err := s.mounts.at(source)
	if err != nil {
		return err
	}
	list, err := s.o.Mounter.List()
	if err != nil {
		return fmt.Errorf("read the mount table: %w", err)
	}
	for _, mp := range list {
		if slices.Contains([]string{staged.Path, target, dev.Directory}, mp.Path) {
			continue
		}
		if mp.Filesystem != staged.Filesystem || mode == provisioner.Block && !s.sameNumber(source, mp.Path) || mode == provisioner.Filesystem && !mp.shows(staged) {
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

// makeTarget makes what a mount is to lie on, unless it is there: a directory, or
// an empty file for a device to be bound on.
func makeTarget(target string, mode provisioner.VolumeMode) error {
	if mode == provisioner.Filesystem {
		if err := os.MkdirAll(target, 0o750); err != nil {
			return fmt.Errorf("make the directory %s: %w", target, err)
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return fmt.Errorf("make the directory of %s: %w", target, err)
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make %s: %w", target, err)
	}
	return f.Close()
}

// What the kubelet adds to the attributes of a volume.
const (
	contextReserved  = "csi.storage.k8s.io/"
	contextEphemeral = contextReserved + "ephemeral"
)

// attributeSize is the attribute of an ephemeral volume that says how large it is to
// be, as a quantity of Kubernetes. All others are the platform's parameters.
const attributeSize = "size"

// publishEphemeral makes a volume that the pod itself describes, and mounts it on the
// target. It has no staging directory, and no other call than NodeUnpublishVolume ends
// it.
func (s *Server) publishEphemeral(ctx context.Context, req *csispec.NodePublishVolumeRequest) error {
	id, target := req.GetVolumeId(), req.GetTargetPath()
	if err := checkTarget(id, "target path", target); err != nil {
		return err
	}
	c, err := csiserver.ParseCapability(req.GetVolumeCapability())
	if err != nil {
		return err
	}
	if s.o.Ephemeral == nil {
		return csiserver.Invalid("this driver has no inline volumes: use a PersistentVolumeClaim, or a generic ephemeral volume")
	}
	c.ReadOnly = c.ReadOnly || req.GetReadonly()
	spec, err := ephemeralSpec(id, req.GetVolumeContext(), c)
	if err != nil {
		return err
	}
	dev, err := s.o.Ephemeral.Make(ctx, spec)
	if err != nil {
		return err
	}
	what, err := s.contentOf(dev, c.Mode)
	if err == nil {
		err = what.refuses(c)
	}
	if err == nil {
		err = s.place(ctx, what, target, c)
	}
	return s.unmake(ctx, id, target, err)
}

// unmake removes an ephemeral volume whose publish failed for good: the kubelet takes
// a final error to mean that nothing was left behind, and asks for no unpublish.
func (s *Server) unmake(ctx context.Context, id, target string, failure error) error {
	if failure == nil || provisioner.Uncertain(failure) {
		return failure
	}
	if mp, mounted, err := s.mounts.at(target); err != nil || mounted {
		return fmt.Errorf("%v; %s is mounted, so the volume stays until it is unpublished: %w", failure, mp.Path, provisioner.ErrBusy)
	}
	if err := s.o.Ephemeral.Remove(ctx, id); err != nil {
		return fmt.Errorf("%v; and remove the volume: %v: %w", failure, err, provisioner.ErrBusy)
	}
	return failure
}

// ephemeralSpec reads what is wanted of a volume in the attributes that the pod gives
// it. What the kubelet adds about the pod is no parameter.
func ephemeralSpec(name string, attributes map[string]string, c csiserver.Capability) (provisioner.VolumeSpec, error) {
	spec := provisioner.VolumeSpec{Name: name, Mode: c.Mode, AccessModes: []provisioner.AccessMode{c.Access}}
	for key, value := range attributes {
		switch {
		case strings.HasPrefix(key, contextReserved):
		case key == attributeSize:
			q, err := resource.ParseQuantity(value)
			bytes, whole := q.AsInt64()
			if err != nil || !whole || bytes <= 0 {
				return provisioner.VolumeSpec{}, csiserver.Invalid("attribute %s is %q: a size in bytes is wanted, such as 64Mi", attributeSize, value)
			}
			spec.CapacityBytes = bytes
		default:
			if spec.Parameters == nil {
				spec.Parameters = map[string]string{}
			}
			spec.Parameters[key] = value
		}
	}
	return spec, nil
}

// NodeUnpublishVolume undoes NodePublishVolume and removes the target, also if
// the device is dead. What is not published is success.
func (s *Server) NodeUnpublishVolume(ctx context.Context, req *csispec.NodeUnpublishVolumeRequest) (*csispec.NodeUnpublishVolumeResponse, error) {
	id, target := req.GetVolumeId(), req.GetTargetPath()
	err := checkTarget(id, "target path", target)
	if err == nil {
		err = s.mounts.clear(target)
	}
	if err == nil {
		err = remove(target)
	}
	if err == nil && s.o.Ephemeral != nil {
		err = s.o.Ephemeral.Remove(ctx, id)
	}
	if err != nil {
		return nil, fmt.Errorf("unpublish volume %q from %q: %w", id, target, err)
	}
	return &csispec.NodeUnpublishVolumeResponse{}, nil
}
