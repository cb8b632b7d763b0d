// Package dpucluster holds what the controllers of the DPU cluster share: the
// scheme and the field indexes by which they find one another's objects, so
// that no event ever costs a full list. The controllers are its subpackages:
// policy, volume, attachment and snapshot; they meet only in the objects.
package dpucluster

import (
	groupsnapshotv1beta2 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta2"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// The field indexes.
const (
	// PolicyByVendor finds StoragePolicies by a StorageVendor they name.
	PolicyByVendor = "spec.storageVendors"
	// VendorByStorageClass finds StorageVendors by their StorageClass.
	VendorByStorageClass = "spec.storageClassName"
	// UnplacedByPolicy finds Volumes that have no vendor yet by the policy
	// that they name.
	UnplacedByPolicy = "unplaced.spec.storageParameters.policy"
	// VolumeByVendor finds Volumes by the vendor chosen for them.
	VolumeByVendor = "spec.volume.storageVendorName"
	// VolumeByClaim finds Volumes by the name of the vendor's claim.
	VolumeByClaim = "spec.volume.csiReference.pvcRef.name"
	// VolumeByDriver finds Volumes by the vendor's CSI driver.
	VolumeByDriver = "spec.volume.csiReference.csiDriverName"
	// VolumeUnreachable finds, by "true", Volumes that cannot be had where they
	// are to be reached.
	VolumeUnreachable = "status.unreachable"
	// AttachmentByVolume finds VolumeAttachments by their Volume.
	AttachmentByVolume = "spec.source.volumeRef.name"
	// CapacityByStorageClass finds CSIStorageCapacities by their StorageClass.
	CapacityByStorageClass = "storageClassName"
	// CopyByVolume and CopyBySnapshot find Volumes, not made yet, by what they
	// begin as a copy of.
	CopyByVolume   = "unmade.spec.request.source.volumeName"
	CopyBySnapshot = "unmade.spec.request.source.snapshotName"
	// SnapshotByVolume finds StorageSnapshots for which no vendor was asked
	// yet by their Volume.
	SnapshotByVolume = "unasked.spec.volumeName"
	// SnapshotByGroup finds StorageSnapshots by their group.
	SnapshotByGroup = "spec.group.name"
	// PVByClaim finds PersistentVolumes by "<namespace>/<name>" of the claim
	// that they belong to.
	PVByClaim = "spec.claimRef"
)

// PolicyParameter is the key of Volume.spec.storageParameters that names the
// StoragePolicy. The string is DPF's.
const PolicyParameter = "policy"

// Indexes are all field indexes of the DPU cluster's controllers.
func Indexes() []kube.Index {
	return []kube.Index{
		kube.IndexOf(PolicyByVendor, func(p *storagev1alpha1.StoragePolicy) []string { return p.Spec.StorageVendors }),
		kube.IndexOf(VendorByStorageClass, func(v *storagev1alpha1.StorageVendor) []string { return kube.Some(v.Spec.StorageClassName) }),
		kube.IndexOf(CapacityByStorageClass, func(c *storagev1.CSIStorageCapacity) []string { return kube.Some(c.StorageClassName) }),
		kube.IndexOf(UnplacedByPolicy, unplacedPolicy),
		kube.IndexOf(VolumeByVendor, func(v *storagev1alpha1.Volume) []string { return kube.Some(v.Spec.Volume.StorageVendorName) }),
		kube.IndexOf(VolumeByClaim, func(v *storagev1alpha1.Volume) []string { return refName(v.Spec.Volume.CSIReference.PVCRef) }),
		kube.IndexOf(VolumeByDriver, func(v *storagev1alpha1.Volume) []string { return kube.Some(v.Spec.Volume.CSIReference.CSIDriverName) }),
		kube.IndexOf(VolumeUnreachable, unreachable),
		kube.IndexOf(AttachmentByVolume, func(a *storagev1alpha1.VolumeAttachment) []string { return refName(a.Spec.Source.VolumeRef) }),
		kube.IndexOf(CopyByVolume, func(v *storagev1alpha1.Volume) []string { return kube.Some(unmadeCopy(v).VolumeName) }),
		kube.IndexOf(CopyBySnapshot, func(v *storagev1alpha1.Volume) []string { return kube.Some(unmadeCopy(v).SnapshotName) }),
		kube.IndexOf(SnapshotByVolume, unaskedOf),
		kube.IndexOf(SnapshotByGroup, groupOf),
		kube.IndexOf(PVByClaim, claimOf),
	}
}

// NewScheme knows the kinds that these controllers read and write.
func NewScheme() (*runtime.Scheme, error) {
	return kube.NewScheme(corev1.AddToScheme, storagev1.AddToScheme, storagev1alpha1.AddDPUToScheme, moorv1alpha1.AddDPUToScheme, snapshotv1.AddToScheme, groupsnapshotv1beta2.AddToScheme)
}

func unplacedPolicy(v *storagev1alpha1.Volume) []string {
	if v.Spec.Volume.StorageVendorName != "" {
		return nil
	}
	return kube.Some(v.Spec.StorageParameters[PolicyParameter])
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

func claimOf(pv *corev1.PersistentVolume) []string {
	if pv.Spec.ClaimRef == nil {
		return nil
	}
	return []string{pv.Spec.ClaimRef.Namespace + "/" + pv.Spec.ClaimRef.Name}
}

func refName(ref *storagev1alpha1.ObjectRef) []string {
	if ref == nil {
		return nil
	}
	return kube.Some(ref.Name)
}
