package snapshot

import (
	"context"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// take asks the vendor for the snapshot and records it, phase by phase. What it
// has seen of the VolumeSnapshot comes back also with an error.
func (r *Reconciler) take(ctx context.Context, s *moorv1alpha1.StorageSnapshot) (*snapshotv1.VolumeSnapshot, error) {
	none := &snapshotv1.VolumeSnapshot{}
	if err := r.recordOrigin(ctx, s); err != nil {
		return none, err
	}
	if s.Spec.Group != nil {
		return r.takeGroup(ctx, s)
	}
	asked := &snapshotv1.VolumeSnapshot{}
	found, err := kube.Find(ctx, r.DPU.Client, client.ObjectKeyFromObject(s), asked)
	if err != nil {
		return none, err
	}
	if !found {
		if s.Spec.Taken != nil {
			return none, kube.WaitFor("the vendor's VolumeSnapshot %s is gone, and perhaps the data with it: restore it, or delete the snapshot", s.Name)
		}
		asked = desired(s)
		if _, err := kube.CreateLive(ctx, r.DPU.Client, r.DPU.Live, asked); err != nil {
			return none, err
		}
	}
	if err := verify(s, asked, metav1.IsControlledBy(asked, s)); err != nil {
		return asked, err
	}
	return asked, r.recordTaken(ctx, s, asked)
}

// recordOrigin records whose data is to be kept, together with the finalizer, in
// one patch that fails if the StorageSnapshot has changed since it was read. So
// this is known before anything outside depends on it, and still when the volume
// is gone.
func (r *Reconciler) recordOrigin(ctx context.Context, s *moorv1alpha1.StorageSnapshot) error {
	if s.Spec.Origin != nil {
		_, err := kube.AddFinalizer(ctx, r.DPU.Client, s, moorv1alpha1.FinalizerStorageSnapshot)
		return err
	}
	volume := &storagev1alpha1.Volume{}
	found, err := kube.Find(ctx, r.DPU.Client, types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.VolumeName}, volume)
	switch {
	case err != nil:
		return err
	case !found || !volume.DeletionTimestamp.IsZero():
		return kube.WaitFor("Volume %s is gone, and nothing was kept of it: delete the snapshot", s.Spec.VolumeName)
	case volume.Status.State != storagev1alpha1.VolumeAvailable || volume.Spec.Volume.CSIReference.PVCRef == nil:
		return kube.WaitFor("waiting for Volume %s to become Available: %s", volume.Name, volume.Status.Message)
	}
	class, err := r.class(ctx, s, volume.Spec.Volume.CSIReference.CSIDriverName)
	if err != nil {
		return err
	}
	_, err = kube.PatchExact(ctx, r.DPU.Client, s, func(s *moorv1alpha1.StorageSnapshot) {
		controllerutil.AddFinalizer(s, moorv1alpha1.FinalizerStorageSnapshot)
		s.Spec.Origin = &moorv1alpha1.SnapshotOrigin{
			StorageVendorName: volume.Spec.Volume.StorageVendorName, CSIDriverName: volume.Spec.Volume.CSIReference.CSIDriverName,
			VolumeSnapshotClassName: class, ClaimName: volume.Spec.Volume.CSIReference.PVCRef.Name,
			VolumeMode: ptr.Deref(volume.Spec.Request.VolumeMode, ""), AccessibleTopology: rememberedTopology(volume),
		}
	})
	return err
}

// rememberedTopology is the accessible topology of a volume, up to the number of
// segments that a snapshot records.
func rememberedTopology(volume *storagev1alpha1.Volume) []map[string]string {
	topology := volume.Spec.Volume.AccessibleTopology
	return topology[:min(len(topology), storagev1alpha1.MostPlaces)]
}

func (r *Reconciler) class(ctx context.Context, s *moorv1alpha1.StorageSnapshot, driver string) (string, error) {
	if s.Spec.Group != nil {
		return r.groupClass(ctx, driver)
	}
	list := &snapshotv1.VolumeSnapshotClassList{}
	if err := r.DPU.Client.List(ctx, list); err != nil {
		return "", fmt.Errorf("find the VolumeSnapshotClass of driver %s: %w", driver, err)
	}
	var classes []candidate
	for i := range list.Items {
		classes = append(classes, candidateOf(&list.Items[i], list.Items[i].Driver, isDefault))
	}
	return selectClass("VolumeSnapshotClass", isDefault, classes, driver)
}

func desired(s *moorv1alpha1.StorageSnapshot) *snapshotv1.VolumeSnapshot {
	return &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, moorv1alpha1.GroupVersion.WithKind("StorageSnapshot"))},
		},
		Spec: snapshotv1.VolumeSnapshotSpec{
			Source:                  snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &s.Spec.Origin.ClaimName},
			VolumeSnapshotClassName: &s.Spec.Origin.VolumeSnapshotClassName,
		},
	}
}

// recordTaken records what was taken, and then waits until it can be used.
func (r *Reconciler) recordTaken(ctx context.Context, s *moorv1alpha1.StorageSnapshot, made *snapshotv1.VolumeSnapshot) error {
	_, err := kube.Patch(ctx, r.DPU.Client, s, func(s *moorv1alpha1.StorageSnapshot) {
		if s.Spec.Taken == nil {
			s.Spec.Taken = &moorv1alpha1.Taken{Time: *made.Status.CreationTime, RestoreSize: *made.Status.RestoreSize}
		}
	})
	if err != nil {
		return err
	}
	if !ptr.Deref(made.Status.ReadyToUse, false) {
		return kube.WaitSince(made.CreationTimestamp.Time, "waiting for the vendor to make the snapshot ready%s", errorOf(made))
	}
	return nil
}

// remove has the vendor's snapshot deleted, waits until it is gone, and lets go.
// That it is gone is asked of the API server: the cache may not show yet what
// was made a moment ago.
func (r *Reconciler) remove(ctx context.Context, s *moorv1alpha1.StorageSnapshot, installed bool) error {
	if !controllerutil.ContainsFinalizer(s, moorv1alpha1.FinalizerStorageSnapshot) {
		return nil
	}
	if s.Spec.Group != nil {
		return r.removeGroup(ctx, s, installed)
	}
	if installed {
		made := &snapshotv1.VolumeSnapshot{}
		found, err := kube.Find(ctx, r.DPU.Client, client.ObjectKeyFromObject(s), made)
		if err == nil && !found {
			found, err = kube.Find(ctx, r.DPU.Live, client.ObjectKeyFromObject(s), made)
		}
		if err != nil {
			return err
		}
		if found && metav1.IsControlledBy(made, s) {
			if err := kube.Delete(ctx, r.DPU.Client, made); err != nil {
				return err
			}
			return kube.WaitFor("waiting for the vendor's VolumeSnapshot %s to go%s", made.Name, errorOf(made))
		}
	}
	return kube.RemoveFinalizers(ctx, r.DPU.Client, s, moorv1alpha1.FinalizerStorageSnapshot)
}
