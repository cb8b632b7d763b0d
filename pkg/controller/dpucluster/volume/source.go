package volume

import (
	"context"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// origin is what a volume begins as a copy of, as its vendor knows it.
type origin struct {
	// vendor that holds the data: no other can copy it.
	vendor string
	// message names it in the DPU cluster.
	message string
	// places from which it is reached; none: from everywhere.
	places []map[string]string
	// data is what the vendor's claim names as its source.
	data *corev1.TypedLocalObjectReference
}

// reach are the places from which the source is reached; none: from everywhere,
// or there is no source.
func (o *origin) reach() []map[string]string {
	if o == nil {
		return nil
	}
	return o.places
}

// origin reads the source of a volume, and waits until it can be copied; nil
// for a volume that begins empty.
func (p *pass) origin(ctx context.Context) (*origin, error) {
	v := p.volume
	switch from := v.Spec.Request.Source; {
	case from == nil:
		return nil, nil
	case (from.VolumeName == "") == (from.SnapshotName == ""):
		return nil, kube.WaitFor("spec.request.source has to name either a Volume or a StorageSnapshot")
	case from.SnapshotName != "":
		return p.ofSnapshot(ctx, types.NamespacedName{Namespace: v.Namespace, Name: from.SnapshotName})
	default:
		return p.ofVolume(ctx, types.NamespacedName{Namespace: v.Namespace, Name: from.VolumeName})
	}
}

func (p *pass) ofVolume(ctx context.Context, key types.NamespacedName) (*origin, error) {
	source := &storagev1alpha1.Volume{}
	found, err := kube.Find(ctx, p.cluster.Client, key, source)
	switch {
	case err != nil:
		return nil, err
	case !found || !source.DeletionTimestamp.IsZero():
		return nil, kube.WaitFor("Volume %s, of which it is to be a copy, is gone: delete this volume", key.Name)
	case source.Status.State != storagev1alpha1.VolumeAvailable:
		return nil, kube.WaitFor("waiting for Volume %s, of which it is to be a copy, to become Available", key.Name)
	}
	return &origin{
		vendor: source.Spec.Volume.StorageVendorName, message: "Volume " + key.Name, places: source.Spec.Volume.AccessibleTopology,
		data: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: pvcKey(source).Name},
	}, nil
}

func (p *pass) ofSnapshot(ctx context.Context, key types.NamespacedName) (*origin, error) {
	source := &moorv1alpha1.StorageSnapshot{}
	found, err := kube.Find(ctx, p.cluster.Client, key, source)
	switch {
	case err != nil:
		return nil, err
	case !found || !source.DeletionTimestamp.IsZero():
		return nil, kube.WaitFor("StorageSnapshot %s, of which it is to be made, is gone: delete this volume", key.Name)
	case source.Spec.Origin == nil || source.Spec.Taken == nil || !source.Status.ReadyToUse:
		return nil, kube.WaitFor("waiting for StorageSnapshot %s, of which it is to be made, to become ready: %s", key.Name, source.Status.Message)
	}
	return &origin{
		vendor: source.Spec.Origin.StorageVendorName, message: "StorageSnapshot " + key.Name, places: source.Spec.Origin.AccessibleTopology,
		data: &corev1.TypedLocalObjectReference{
			APIGroup: ptr.To(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: source.Status.VolumeSnapshotName,
		},
	}, nil
}
