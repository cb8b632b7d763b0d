package volume

import (
	"context"
	"fmt"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/snapshot"
)

// Copies makes DPUVolumes that begin with the data of others, of volumes or of
// snapshots. The vendor of the source makes the copy.
type Copies struct {
	volumes *Volumes
	// snapshots is nil where there are none.
	snapshots *snapshot.Snapshots
}

var _ provisioner.Copies = (*Copies)(nil)

// Copies makes volumes of volumes, and of snapshots unless these are nil.
func (v *Volumes) Copies(snapshots *snapshot.Snapshots) *Copies {
	return &Copies{volumes: v, snapshots: snapshots}
}

// CreateFrom makes the DPUVolume spec.Name as a copy of source and waits until
// its vendor's volume is bound. It is never smaller than its source.
func (c *Copies) CreateFrom(ctx context.Context, spec provisioner.VolumeSpec, source provisioner.Source) (provisioner.Volume, error) {
	if (source.VolumeID == "") == (source.SnapshotID == "") {
		return provisioner.Volume{}, fmt.Errorf("create volume %q: %w: one volume or one snapshot has to be named as its source", spec.Name, provisioner.ErrInvalid)
	}
	wide, err := c.widened(ctx, spec, source)
	if err != nil {
		return provisioner.Volume{}, fmt.Errorf("create volume %q as a copy: %w", spec.Name, err)
	}
	return c.volumes.createFrom(ctx, wide, sourceOf(source))
}

// widened checks the source, and is spec with at least its size. A volume that
// is there is judged by what it is: its source may be gone by now.
func (c *Copies) widened(ctx context.Context, spec provisioner.VolumeSpec, source provisioner.Source) (provisioner.VolumeSpec, error) {
	key := c.volumes.key(kube.ObjectName(spec.Name))
	found, err := kube.Find(ctx, c.volumes.options.Client, key, &storagev1alpha1.DPUVolume{})
	if err != nil {
		return spec, request.Refused("read volume "+key.Name, err)
	}
	if found {
		return spec, nil
	}
	bytes, mode, err := c.original(ctx, source)
	switch {
	case err != nil:
		return spec, err
	case mode != spec.Mode:
		return spec, fmt.Errorf("%w: its source is a volume of mode %s, not %s", provisioner.ErrInvalid, mode, spec.Mode)
	case spec.LimitBytes > 0 && spec.LimitBytes < bytes:
		return spec, fmt.Errorf("%w: its source has %d bytes, more than the limit of %d", provisioner.ErrOutOfRange, bytes, spec.LimitBytes)
	}
	spec.CapacityBytes = max(spec.CapacityBytes, bytes)
	return spec, nil
}

// original is the size and the mode of what is to be copied.
func (c *Copies) original(ctx context.Context, source provisioner.Source) (bytes int64, mode provisioner.VolumeMode, err error) {
	if source.SnapshotID != "" {
		return c.snapshots.Original(ctx, source.SnapshotID)
	}
	o := &storagev1alpha1.DPUVolume{}
	found, err := kube.Find(ctx, c.volumes.options.Client, c.volumes.key(source.VolumeID), o)
	switch {
	case err != nil:
		return 0, "", request.Refused("read volume "+source.VolumeID, err)
	case !found || !o.DeletionTimestamp.IsZero():
		return 0, "", fmt.Errorf("volume %s, its source: %w in namespace %s", source.VolumeID, provisioner.ErrNotFound, c.volumes.options.Namespace)
	case o.Status.Phase != storagev1alpha1.DPUVolumeBound:
		return 0, "", fmt.Errorf("volume %s, its source: %w: its vendor has not made it yet", source.VolumeID, provisioner.ErrBusy)
	}
	v, err := volumeOf(o, nil)
	return v.CapacityBytes, v.Mode, err
}

// sourceOf is a source in the words of a DPUVolume; nil for none.
func sourceOf(source provisioner.Source) *storagev1alpha1.DPUVolumeSource {
	if source == (provisioner.Source{}) {
		return nil
	}
	return &storagev1alpha1.DPUVolumeSource{DPUVolumeName: source.VolumeID, DPUVolumeSnapshotName: source.SnapshotID}
}
