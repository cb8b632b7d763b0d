package volume

import (
	"context"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
)

// origin is what a volume begins as a copy of, as its vendor knows it.
type origin struct {
	// vendor that holds the data: nobody else can copy it.
	vendor string
	// words name it in the DPU cluster.
	words string
	// places from which it is reached; none: from everywhere.
	places []map[string]string
	// data is what the vendor's claim names as its source.
	data *corev1.TypedLocalObjectReference
}

// origin reads the source of a volume, and waits until it can be copied; nil
// for a volume that begins empty.
func (r *Reconciler) origin(ctx context.Context, v *storagev1alpha1.Volume) (*origin, error) {
	switch from := v.Spec.Request.Source; {
	case from == nil:
		return nil, nil
	case (from.VolumeName == "") == (from.SnapshotName == ""):
		return nil, kube.WaitFor("spec.request.source has to name either a Volume or a StorageSnapshot")
	case from.SnapshotName != "":
		return r.ofSnapshot(ctx, types.NamespacedName{Namespace: v.Namespace, Name: from.SnapshotName})
	default:
		return r.ofVolume(ctx, types.NamespacedName{Namespace: v.Namespace, Name: from.VolumeName})
	}
}

func (r *Reconciler) ofVolume(ctx context.Context, key types.NamespacedName) (*origin, error) {
	source := &storagev1alpha1.Volume{}
	found, err := kube.Find(ctx, r.DPU.Client, key, source)
	switch {
	case err != nil:
		return nil, err
	case !found || !source.DeletionTimestamp.IsZero():
		return nil, kube.WaitFor("Volume %s, of which it is to be a copy, is gone: delete this volume", key.Name)
	case source.Status.State != storagev1alpha1.VolumeAvailable:
		return nil, kube.WaitFor("waiting for Volume %s, of which it is to be a copy, to become Available", key.Name)
	}
	return &origin{
		vendor: source.Spec.Volume.StorageVendorName, words: "Volume " + key.Name, places: source.Spec.Volume.AccessibleTopology,
		data: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: claimKey(source).Name},
	}, nil
}

func (r *Reconciler) ofSnapshot(ctx context.Context, key types.NamespacedName) (*origin, error) {
	source := &moorv1alpha1.StorageSnapshot{}
	found, err := kube.Find(ctx, r.DPU.Client, key, source)
	switch {
	case err != nil:
		return nil, err
	case !found || !source.DeletionTimestamp.IsZero():
		return nil, kube.WaitFor("StorageSnapshot %s, of which it is to be made, is gone: delete this volume", key.Name)
	case source.Spec.Origin == nil || source.Spec.Taken == nil || !source.Status.ReadyToUse:
		return nil, kube.WaitFor("waiting for StorageSnapshot %s, of which it is to be made, to become ready: %s", key.Name, source.Status.Message)
	}
	return &origin{
		vendor: source.Spec.Origin.StorageVendorName, words: "StorageSnapshot " + key.Name, places: source.Spec.Origin.AccessibleTopology,
		data: &corev1.TypedLocalObjectReference{
			APIGroup: ptr.To(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: source.Status.VolumeSnapshotName,
		},
	}, nil
}

// vendorOf is the vendor that has to make the copy; "" for a volume that begins
// empty, which any vendor of the policy may make.
func (r *Reconciler) vendorOf(ctx context.Context, v *storagev1alpha1.Volume, policy *storagev1alpha1.StoragePolicy) (string, error) {
	from, err := r.origin(ctx, v)
	if err != nil || from == nil {
		return "", err
	}
	if !slices.Contains(policy.Spec.StorageVendors, from.vendor) {
		return "", kube.WaitFor("%s is of StorageVendor %s, which StoragePolicy %s does not name: a copy is made by the vendor of its source; "+
			"ask for it under a policy that names that vendor", from.words, from.vendor, policy.Name)
	}
	return from.vendor, nil
}

// ofSource finds the volumes that wait to be copies of a Volume.
func (r *Reconciler) ofSource(ctx context.Context, o client.Object) []reconcile.Request {
	return r.volumes(ctx, o.GetNamespace(), index.CopyByVolume, o.GetName())
}

// ofStorageSnapshot finds the volumes that wait to be made of a snapshot.
func (r *Reconciler) ofStorageSnapshot(ctx context.Context, o client.Object) []reconcile.Request {
	return r.volumes(ctx, o.GetNamespace(), index.CopyBySnapshot, o.GetName())
}
