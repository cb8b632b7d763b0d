package index

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// The field indexes of the DPU cluster, named by the kind that is found and by what
// it is found.
const (
	// StoragePolicyByVendor finds StoragePolicies by a StorageVendor they name.
	StoragePolicyByVendor = "spec.storageVendors"
	// StorageVendorByClass finds StorageVendors by their StorageClass.
	StorageVendorByClass = "spec.storageClassName"
	// VolumeWithoutVendorByPolicy finds Volumes that have no vendor yet by the policy
	// that they name.
	VolumeWithoutVendorByPolicy = "unplaced.spec.storageParameters.policy"
	// VolumeByPVC finds Volumes by the name of the vendor's claim.
	VolumeByPVC = "spec.volume.csiReference.pvcRef.name"
	// VolumeByDriver finds Volumes by the vendor's CSI driver.
	VolumeByDriver = "spec.volume.csiReference.csiDriverName"
	// VolumeUnreachable finds, by "true", Volumes that cannot be had where they
	// are to be reached.
	VolumeUnreachable = "status.unreachable"
	// VolumeAttachmentByVolume finds VolumeAttachments by their Volume.
	VolumeAttachmentByVolume = "spec.source.volumeRef.name"
	// CapacityByClass finds CSIStorageCapacities by their StorageClass.
	CapacityByClass = "storageClassName"
	// CopyByVolume and CopyBySnapshot find Volumes, not made yet, by what they
	// begin as a copy of.
	CopyByVolume   = "unmade.spec.request.source.volumeName"
	CopyBySnapshot = "unmade.spec.request.source.snapshotName"
	// SnapshotByVolume finds StorageSnapshots for which no vendor was asked
	// yet by their Volume.
	SnapshotByVolume = "unasked.spec.volumeName"
	// SnapshotByGroup finds StorageSnapshots by their group.
	SnapshotByGroup = "spec.group.name"
	// SVVolumeAttachmentByPersistentVolume finds SVVolumeAttachments by the
	// PersistentVolume that they attach.
	SVVolumeAttachmentByPersistentVolume = "spec.source.persistentVolumeName"
)

// DPU are the indexes of snap-controller's cache of the DPU cluster.
func DPU() []kube.Index {
	return []kube.Index{
		kube.IndexOf(StoragePolicyByVendor, func(p *storagev1alpha1.StoragePolicy) []string { return p.Spec.StorageVendors }),
		kube.IndexOf(StorageVendorByClass, func(v *storagev1alpha1.StorageVendor) []string { return kube.Some(v.Spec.StorageClassName) }),
		kube.IndexOf(CapacityByClass, func(c *storagev1.CSIStorageCapacity) []string { return kube.Some(c.StorageClassName) }),
		kube.IndexOf(VolumeWithoutVendorByPolicy, withoutVendor),
		kube.IndexOf(VolumeByPVC, func(v *storagev1alpha1.Volume) []string { return refName(v.Spec.Volume.CSIReference.PVCRef) }),
		kube.IndexOf(VolumeByDriver, func(v *storagev1alpha1.Volume) []string { return kube.Some(v.Spec.Volume.CSIReference.CSIDriverName) }),
		kube.IndexOf(VolumeUnreachable, unreachable),
		attachmentByItsVolume(),
		kube.IndexOf(CopyByVolume, func(v *storagev1alpha1.Volume) []string { return kube.Some(unmadeCopy(v).VolumeName) }),
		kube.IndexOf(CopyBySnapshot, func(v *storagev1alpha1.Volume) []string { return kube.Some(unmadeCopy(v).SnapshotName) }),
		kube.IndexOf(SnapshotByVolume, unaskedOf),
		kube.IndexOf(SnapshotByGroup, groupOf),
		podvolume.IndexPersistentVolumesByClaim(),
	}
}

// Mirrors are the indexes of snap-host-controller's cache of the DPU cluster.
func Mirrors() []kube.Index { return []kube.Index{attachmentByItsVolume()} }

func attachmentByItsVolume() kube.Index {
	return kube.IndexOf(VolumeAttachmentByVolume, func(a *storagev1alpha1.VolumeAttachment) []string { return refName(a.Spec.Source.VolumeRef) })
}

// Attacher are the indexes of snap-external-attacher's cache of the DPU cluster.
func Attacher() []kube.Index {
	return []kube.Index{kube.IndexOf(SVVolumeAttachmentByPersistentVolume, func(a *storagev1alpha1.SVVolumeAttachment) []string {
		return kube.Some(ptr.Deref(a.Spec.Source.PersistentVolumeName, ""))
	})}
}

func withoutVendor(v *storagev1alpha1.Volume) []string {
	if v.Spec.Volume.StorageVendorName != "" {
		return nil
	}
	return kube.Some(v.Spec.StorageParameters[storagev1alpha1.ParameterPolicy])
}

func unreachable(v *storagev1alpha1.Volume) []string {
	if !v.Status.Unreachable {
		return nil
	}
	return []string{"true"}
}

// unmadeCopy is what a volume that is not made yet begins as a copy of.
func unmadeCopy(v *storagev1alpha1.Volume) storagev1alpha1.CopySource {
	if v.Spec.Request.Source == nil || v.Spec.Volume.ID != "" {
		return storagev1alpha1.CopySource{}
	}
	return *v.Spec.Request.Source
}

func groupOf(s *moorv1alpha1.StorageSnapshot) []string {
	if s.Spec.Group == nil {
		return nil
	}
	return kube.Some(s.Spec.Group.Name)
}

func unaskedOf(s *moorv1alpha1.StorageSnapshot) []string {
	if s.Spec.Origin != nil {
		return nil
	}
	return kube.Some(s.Spec.VolumeName)
}

func refName(ref *storagev1alpha1.ObjectRef) []string {
	if ref == nil {
		return nil
	}
	return kube.Some(ref.Name)
}
