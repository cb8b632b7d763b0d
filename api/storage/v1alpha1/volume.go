package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CapacityRange is the least and the largest size, in bytes.
type CapacityRange struct {
	// Request is the least size.
	// +optional
	Request *resource.Quantity `json:"request,omitempty"`
	// Limit is the largest size.
	// +optional
	Limit *resource.Quantity `json:"limit,omitempty"`
}

// VolumeRequest is what the user asked for.
type VolumeRequest struct {
	// CapacityRange of the volume.
	// +optional
	CapacityRange CapacityRange `json:"capacityRange,omitempty"`
	// AccessModes wanted.
	// +optional
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	// VolumeMode wanted.
	// +optional
	VolumeMode *corev1.PersistentVolumeMode `json:"volumeMode,omitempty"`
	// Source is what the volume begins as a copy of. An addition of Moor.
	// +optional
	Source *CopySource `json:"source,omitempty"`
	// AccessibleFrom are the places from one of which it has to be reached, the
	// most preferred first. Empty: from anywhere. An addition of Moor.
	// +optional
	AccessibleFrom []map[string]string `json:"accessibleFrom,omitempty"`
	// MutableParameters wanted. An addition of Moor.
	// +optional
	MutableParameters map[string]string `json:"mutableParameters,omitempty"`
	// MaxShares is how many hosts may have the volume, replicas included. Not set: one.
	// An addition of Moor.
	// +optional
	MaxShares int32 `json:"maxShares,omitempty"`
}

// CopySource names, in the same namespace, what a volume begins as a copy of:
// one of the two.
type CopySource struct {
	// VolumeName is a Volume.
	// +optional
	VolumeName string `json:"volumeName,omitempty"`
	// SnapshotName is a StorageSnapshot.
	// +optional
	SnapshotName string `json:"snapshotName,omitempty"`
}

// CSIReference names the vendor's objects behind a volume.
type CSIReference struct {
	// CSIDriverName is the vendor's driver.
	// +optional
	CSIDriverName string `json:"csiDriverName,omitempty"`
	// StorageClassName is the vendor's class.
	// +optional
	StorageClassName string `json:"storageClassName,omitempty"`
	// PVCRef is the vendor's claim.
	// +optional
	PVCRef *ObjectRef `json:"pvcRef,omitempty"`
}

// VolumeSource is the volume that the vendor made. Writer: snap-controller.
type VolumeSource struct {
	// ID of the volume: the UID of the Volume object.
	// +optional
	ID string `json:"id,omitempty"`
	// Capacity that the vendor gave.
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`
	// AccessModes that the vendor gave.
	// +optional
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	// ReclaimPolicy of the vendor's PersistentVolume.
	// +kubebuilder:validation:Enum=Delete;Retain
	// +optional
	ReclaimPolicy corev1.PersistentVolumeReclaimPolicy `json:"reclaimPolicy,omitempty"`
	// StorageVendorName chosen.
	// +optional
	StorageVendorName string `json:"storageVendorName,omitempty"`
	// StorageVendorPluginName is that vendor's plugin.
	// +optional
	StorageVendorPluginName string `json:"storageVendorPluginName,omitempty"`
	// VolumeAttributes are the vendor's volume context.
	// +optional
	VolumeAttributes map[string]string `json:"volumeAttributes,omitempty"`
	// MutableParameters that the vendor has put into effect. An addition of
	// Moor.
	// +optional
	MutableParameters map[string]string `json:"mutableParameters,omitempty"`
	// AccessibleTopology are the places from which it is reached, as the node
	// affinity of the vendor's PersistentVolume says. Absent: from everywhere.
	// An addition of Moor.
	// +optional
	AccessibleTopology []map[string]string `json:"accessibleTopology,omitempty"`
	// CSIReference names the vendor's objects.
	// +optional
	CSIReference CSIReference `json:"csiReference,omitempty"`
}

// VolumeSpec is the request and, once made, the volume.
type VolumeSpec struct {
	// Request is what the user asked for. Writer: snap-host-controller.
	Request VolumeRequest `json:"request"`
	// StorageParameters of the volume; the key policy names the policy.
	// +optional
	StorageParameters map[string]string `json:"storageParameters,omitempty"`
	// StoragePolicyRef is the policy that chose the vendor.
	// +optional
	StoragePolicyRef *ObjectRef `json:"storagePolicyRef,omitempty"`
	// StoragePolicyParameters of that policy.
	// +optional
	StoragePolicyParameters map[string]string `json:"storagePolicyParameters,omitempty"`
	// Volume is what the vendor made.
	// +optional
	Volume VolumeSource `json:"volume,omitempty"`
}

// VolumeState is where a volume is in its life.
// +kubebuilder:validation:Enum=InProgress;Available
type VolumeState string

// The states of a Volume.
const (
	VolumeInProgress VolumeState = "InProgress"
	VolumeAvailable  VolumeState = "Available"
)

// VolumeChange is how far a change of a volume is that the vendor has not put
// into effect.
type VolumeChange struct {
	// Message says what is waited for, or why the vendor refuses.
	// +optional
	Message string `json:"message,omitempty"`
	// Refused: the vendor will not do it however often it is asked.
	// +optional
	Refused bool `json:"refused,omitempty"`
	// Size that this speaks of, of an expansion.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// Parameters that this speaks of, of a modification.
	// +optional
	Parameters map[string]string `json:"parameters,omitempty"`
}

// VolumeStatus is what snap-controller sees.
type VolumeStatus struct {
	// State: InProgress until the vendor's PersistentVolume is bound.
	// +optional
	State VolumeState `json:"state,omitempty"`
	// Message says what is waited for. An addition of Moor.
	// +optional
	Message string `json:"message,omitempty"`
	// Unreachable: as things are, it cannot be had from where it is to be
	// reached; Message says why. An addition of Moor.
	// +optional
	Unreachable bool `json:"unreachable,omitempty"`
	// Expansion is how far the volume is from the size that is asked for;
	// absent if it has it. An addition of Moor.
	// +optional
	Expansion *VolumeChange `json:"expansion,omitempty"`
	// Modification is how far the volume is from the mutable parameters that
	// are asked for; absent if it has them. An addition of Moor.
	// +optional
	Modification *VolumeChange `json:"modification,omitempty"`
}

// Volume is a DPUVolume as the DPU cluster knows it.
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=moor
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="Vendor",type=string,JSONPath=`.spec.volume.storageVendorName`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Volume struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VolumeSpec   `json:"spec,omitempty"`
	Status VolumeStatus `json:"status,omitempty"`
}

// VolumeList is a list of Volumes.
// +kubebuilder:object:root=true
type VolumeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Volume `json:"items"`
}
