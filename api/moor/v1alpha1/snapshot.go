package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SnapshotGroup makes a snapshot one of several that are taken at one instant,
// and live and go together. There is one snapshot for each volume of a group,
// and every one of them names the same group.
type SnapshotGroup struct {
	// Name of the group.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// VolumeNames are all volumes of the group.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	VolumeNames []string `json:"volumeNames"`
}

// DPUVolumeSnapshotSpec names the volume. Writer: the CSI controller, or the
// user in zero-trust mode.
// +kubebuilder:validation:XValidation:rule="has(self.group) == has(oldSelf.group) && (!has(self.group) || self.group == oldSelf.group)",message="group is immutable"
// +kubebuilder:validation:XValidation:rule="!has(self.group) || self.dpuVolumeName in self.group.volumeNames",message="group.volumeNames has to name the volume itself"
type DPUVolumeSnapshotSpec struct {
	// DPUVolumeName is a DPUVolume in the same namespace, which may go while
	// the snapshot stays.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="dpuVolumeName is immutable"
	DPUVolumeName string `json:"dpuVolumeName"`
	// Group that the snapshot is taken with; absent if alone.
	// +optional
	Group *SnapshotGroup `json:"group,omitempty"`
}

// SnapshotOrigin is whose data a snapshot holds, as the DPU cluster knows it. It
// is written before the vendor is asked, and outlives the volume.
type SnapshotOrigin struct {
	// StorageVendorName is the vendor of the volume.
	StorageVendorName string `json:"storageVendorName"`
	// CSIDriverName is that vendor's driver.
	CSIDriverName string `json:"csiDriverName"`
	// VolumeSnapshotClassName is the VolumeSnapshotClass of that driver; of a
	// snapshot in a group, its VolumeGroupSnapshotClass.
	VolumeSnapshotClassName string `json:"volumeSnapshotClassName"`
	// ClaimName is the vendor's PersistentVolumeClaim of the volume.
	ClaimName string `json:"claimName"`
	// VolumeMode of the volume: Filesystem or Block. Empty: Filesystem.
	// +optional
	VolumeMode corev1.PersistentVolumeMode `json:"volumeMode,omitempty"`
	// AccessibleTopology are the places from which the volume was reached; what
	// is made of the snapshot is reached from one of them. Absent: everywhere.
	// +kubebuilder:validation:MaxItems=256
	// +optional
	AccessibleTopology []map[string]string `json:"accessibleTopology,omitempty"`
}

// Taken is what the vendor's snapshot is, from the moment on when it holds the
// data. It never changes.
type Taken struct {
	// Time of which it holds the data.
	Time metav1.Time `json:"time"`
	// RestoreSize is the least size of a volume made of it, in bytes.
	RestoreSize resource.Quantity `json:"restoreSize"`
}

// DPUVolumeSnapshotStatus is what the host controller sees. Writer:
// snap-host-controller.
type DPUVolumeSnapshotStatus struct {
	// Taken is set once the vendor's snapshot holds the data.
	// +optional
	Taken *Taken `json:"taken,omitempty"`
	// Origin is set before the vendor is asked for it.
	// +optional
	Origin *SnapshotOrigin `json:"origin,omitempty"`
	// ReadyToUse is true once a volume can be made of it.
	// +optional
	ReadyToUse bool `json:"readyToUse,omitempty"`
	// DPUCluster in which it is taken, as "namespace/name" of the DPUCluster, where there
	// are several. It is set before anything is made there.
	// +optional
	DPUCluster string `json:"dpuCluster,omitempty"`
	// Conditions: Ready, DPUVolumeSnapshotReconciled, Taken, ReadyToUse.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that Conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// DPUVolumeSnapshot is what a DPUVolume held at one instant. It outlives the
// volume.
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=moor,shortName=dpuvs
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="DPUVolume",type=string,JSONPath=`.spec.dpuVolumeName`
// +kubebuilder:printcolumn:name="ReadyToUse",type=boolean,JSONPath=`.status.readyToUse`
// +kubebuilder:printcolumn:name="RestoreSize",type=string,JSONPath=`.status.taken.restoreSize`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DPUVolumeSnapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DPUVolumeSnapshotSpec   `json:"spec,omitempty"`
	Status DPUVolumeSnapshotStatus `json:"status,omitempty"`
}

// DPUVolumeSnapshotList is a list of DPUVolumeSnapshots.
// +kubebuilder:object:root=true
type DPUVolumeSnapshotList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DPUVolumeSnapshot `json:"items"`
}

// StorageSnapshotSpec is the request and, once taken, the snapshot.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.origin) || has(self.origin) && self.origin == oldSelf.origin",message="origin is immutable once it is set"
// +kubebuilder:validation:XValidation:rule="has(self.group) == has(oldSelf.group) && (!has(self.group) || self.group == oldSelf.group)",message="group is immutable"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.taken) || has(self.taken) && self.taken == oldSelf.taken",message="taken is immutable once it is set: a snapshot is of one instant"
type StorageSnapshotSpec struct {
	// VolumeName is a Volume in the same namespace. Writer:
	// snap-host-controller.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="volumeName is immutable"
	VolumeName string `json:"volumeName"`
	// Group that the snapshot is taken with, by the names of Volumes; absent if
	// alone. Writer: snap-host-controller.
	// +optional
	Group *SnapshotGroup `json:"group,omitempty"`
	// Origin is whose data it holds. Writer: snap-controller, before it asks
	// the vendor.
	// +optional
	Origin *SnapshotOrigin `json:"origin,omitempty"`
	// Taken is what the vendor made. It stands here and not in the status,
	// since nothing else remembers that the data was kept: without it a lost
	// snapshot would be taken again, of another instant. Writer:
	// snap-controller.
	// +optional
	Taken *Taken `json:"taken,omitempty"`
}

// StorageSnapshotStatus is what snap-controller sees.
type StorageSnapshotStatus struct {
	// VolumeSnapshotName is the VolumeSnapshot (snapshot.storage.k8s.io) in
	// the same namespace by which the vendor is asked. Empty: not asked yet.
	// +optional
	VolumeSnapshotName string `json:"volumeSnapshotName,omitempty"`
	// ReadyToUse is true once a volume can be made of it.
	// +optional
	ReadyToUse bool `json:"readyToUse,omitempty"`
	// Message says what is waited for.
	// +optional
	Message string `json:"message,omitempty"`
}

// StorageSnapshot is a DPUVolumeSnapshot as the DPU cluster knows it. Behind it
// stands the vendor's VolumeSnapshot, of group snapshot.storage.k8s.io.
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=moor
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="Volume",type=string,JSONPath=`.spec.volumeName`
// +kubebuilder:printcolumn:name="ReadyToUse",type=boolean,JSONPath=`.status.readyToUse`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type StorageSnapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   StorageSnapshotSpec   `json:"spec,omitempty"`
	Status StorageSnapshotStatus `json:"status,omitempty"`
}

// StorageSnapshotList is a list of StorageSnapshots.
// +kubebuilder:object:root=true
type StorageSnapshotList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StorageSnapshot `json:"items"`
}

// The finalizers of the two kinds of snapshot.
const (
	// FinalizerDPUVolumeSnapshot keeps a DPUVolumeSnapshot while its mirror
	// is there.
	FinalizerDPUVolumeSnapshot = "storage.moor.dev/dpuvolumesnapshot"
	// FinalizerStorageSnapshot keeps a StorageSnapshot while the vendor has it.
	FinalizerStorageSnapshot = "storage.moor.dev/storagesnapshot"
)

// AnnotationOwnedByDPUVolumeSnapshot names, on a StorageSnapshot, the
// DPUVolumeSnapshot that it mirrors, as "<namespace>/<name>".
const AnnotationOwnedByDPUVolumeSnapshot = "storage.moor.dev/owned-by-dpuvolumesnapshot"

// Condition types of a DPUVolumeSnapshot, beside Ready.
const (
	ConditionDPUVolumeSnapshotReconciled = "DPUVolumeSnapshotReconciled"
	ConditionTaken                       = "Taken"
	ConditionReadyToUse                  = "ReadyToUse"
)
