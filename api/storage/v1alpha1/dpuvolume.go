package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DPUVolumeSpec is what is wanted of a volume. Its size can grow, and its mutable
// parameters and replication can change; all else never does. Writer: the CSI
// controller, or the user in zero-trust mode.
// +kubebuilder:validation:XValidation:rule="self.dpuStoragePolicyName == oldSelf.dpuStoragePolicyName",message="dpuStoragePolicyName is immutable"
// +kubebuilder:validation:XValidation:rule="self.parameters == oldSelf.parameters",message="parameters is immutable"
// +kubebuilder:validation:XValidation:rule="self.accessModes == oldSelf.accessModes",message="accessModes is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.resources.limits) == has(oldSelf.resources.limits) && (!has(self.resources.limits) || ('storage' in self.resources.limits) == ('storage' in oldSelf.resources.limits))",message="resources.limits.storage can be raised, not set or removed"
// +kubebuilder:validation:XValidation:rule="!has(self.resources.limits) || !has(oldSelf.resources.limits) || !('storage' in self.resources.limits) || !('storage' in oldSelf.resources.limits) || !quantity(string(self.resources.limits['storage'])).isLessThan(quantity(string(oldSelf.resources.limits['storage'])))",message="resources.limits.storage can be raised, not lowered"
// +kubebuilder:validation:XValidation:rule="self.volumeMode == oldSelf.volumeMode",message="volumeMode is immutable"
// +kubebuilder:validation:XValidation:rule="!has(self.replication) || !has(self.replication.warmth) || self.replication.warmth != 'Attached' || self.accessModes.exists(m, m in ['ReadWriteMany', 'ReadOnlyMany'])",message="replication.warmth Attached is for volumes that several hosts may have at once: a single writer's replica stays hidden from its host until it is promoted"
// +kubebuilder:validation:XValidation:rule="has(self.source) == has(oldSelf.source) && (!has(self.source) || self.source == oldSelf.source)",message="source is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.accessibleFrom) == has(oldSelf.accessibleFrom) && (!has(self.accessibleFrom) || self.accessibleFrom == oldSelf.accessibleFrom)",message="accessibleFrom is immutable"
type DPUVolumeSpec struct {
	// DPUStoragePolicyName names a DPUStoragePolicy in the same namespace.
	// +kubebuilder:validation:MinLength=1
	DPUStoragePolicyName string `json:"dpuStoragePolicyName"`
	// Parameters go to the vendor's plugin; they win over the policy's.
	// +kubebuilder:default={}
	// +optional
	Parameters map[string]string `json:"parameters,omitempty"`
	// AccessModes: ReadWriteOnce, ReadOnlyMany, ReadWriteMany; and, which is
	// an addition of Moor, ReadWriteOncePod.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:XValidation:rule="self.all(m, m in ['ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOncePod'])",message="each access mode must be one of ReadWriteOnce, ReadOnlyMany, ReadWriteMany, ReadWriteOncePod"
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes"`
	// Resources: requests.storage is the least size in bytes, limits.storage
	// the largest. Both can be raised: then the volume grows.
	// +kubebuilder:validation:XValidation:rule="has(self.requests) && 'storage' in self.requests",message="resources.requests.storage must be set"
	Resources corev1.VolumeResourceRequirements `json:"resources"`
	// VolumeMode: Filesystem or Block.
	// +kubebuilder:validation:Enum=Filesystem;Block
	// +kubebuilder:default=Filesystem
	// +optional
	VolumeMode *corev1.PersistentVolumeMode `json:"volumeMode,omitempty"`
	// Source is what the volume begins as a copy of; without it, it begins
	// empty. An addition of Moor.
	// +optional
	Source *DPUVolumeSource `json:"source,omitempty"`
	// AccessibleFrom are places from one of which at least the volume has to be
	// reached, the most preferred first: each names values of topology keys, as
	// they are in status.topology of DPUStorageNodes. Empty: from anywhere. An
	// addition of Moor.
	// +kubebuilder:validation:MaxItems=256
	// +optional
	AccessibleFrom []map[string]string `json:"accessibleFrom,omitempty"`
	// MutableParameters are the vendor's parameters that may change in the life
	// of the volume: those of a VolumeAttributesClass. Those not named are the
	// vendor's own choice. An addition of Moor.
	// +optional
	MutableParameters map[string]string `json:"mutableParameters,omitempty"`
	// Replication of attachments: how many hosts hold the volume ready, and
	// what happens when one dies. An addition of Moor.
	// +optional
	Replication *Replication `json:"replication,omitempty"`
	// DeadMount says what happens to pods whose mount of the volume is of no use any
	// more. Empty: Restart if replication.failover is Fence, else Tell. An addition of Moor.
	// +optional
	DeadMount DeadMountMode `json:"deadMount,omitempty"`
}

// DPUVolumeSource is what a volume begins as a copy of: a volume or a snapshot,
// of the same vendor, and no larger.
// +kubebuilder:validation:XValidation:rule="has(self.dpuVolumeName) != has(self.dpuVolumeSnapshotName)",message="exactly one of dpuVolumeName and dpuVolumeSnapshotName must be set"
type DPUVolumeSource struct {
	// DPUVolumeName is a DPUVolume in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +optional
	DPUVolumeName string `json:"dpuVolumeName,omitempty"`
	// DPUVolumeSnapshotName is a DPUVolumeSnapshot in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +optional
	DPUVolumeSnapshotName string `json:"dpuVolumeSnapshotName,omitempty"`
}

// Warmth is how much of a volume's way to a host is walked: what a status says
// of an attachment, and what a spec, by one of the two warmer degrees, wants of
// a replica.
type Warmth string

// The degrees of warmth, the colder first.
const (
	// WarmthStorageAttached: the storage lets the DPU use the volume.
	WarmthStorageAttached Warmth = "StorageAttached"
	// WarmthPreEmulated: all is made but the attachment of the namespace;
	// the host sees nothing, and promotion is one call.
	WarmthPreEmulated Warmth = "PreEmulated"
	// WarmthAttached: the host sees the device; wanted of a replica only of
	// volumes that several hosts may have at once.
	WarmthAttached Warmth = "Attached"
)

// FailoverMode says what happens when the primary's host dies.
// +kubebuilder:validation:Enum=Fence;Off
type FailoverMode string

// The failover modes.
const (
	// FailoverFence: the right to write is taken back with proof, and the
	// pods are released, so that they run elsewhere.
	FailoverFence FailoverMode = "Fence"
	// FailoverOff: nothing happens by itself.
	FailoverOff FailoverMode = "Off"
)

// DeadMountMode says what happens to pods whose mount of a volume is of no use any more.
// +kubebuilder:validation:Enum=Restart;Tell
type DeadMountMode string

// What happens to pods with dead mounts.
const (
	// DeadMountRestart: those that a controller makes anew are deleted, in order, so that
	// the volume is mounted anew.
	DeadMountRestart DeadMountMode = "Restart"
	// DeadMountTell: it is told of, and nothing else.
	DeadMountTell DeadMountMode = "Tell"
)

// OnDeadMount is DeadMount, or what holds where it is empty.
func (s *DPUVolumeSpec) OnDeadMount() DeadMountMode {
	switch {
	case s.DeadMount != "":
		return s.DeadMount
	case s.Replication != nil && s.Replication.Failover == FailoverFence:
		return DeadMountRestart
	}
	return DeadMountTell
}

// Replication says how many hosts hold a volume ready.
// +kubebuilder:validation:XValidation:rule="self.maxMountReplicaCount < self.maxShares",message="maxMountReplicaCount must be less than maxShares"
type Replication struct {
	// MaxShares is the most hosts that may have the volume, replicas
	// included.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=1
	MaxShares int32 `json:"maxShares"`
	// MaxMountReplicaCount is how many replicas are kept beside the primary.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=0
	MaxMountReplicaCount int32 `json:"maxMountReplicaCount"`
	// Warmth of the replicas.
	// +kubebuilder:validation:Enum=PreEmulated;Attached
	// +kubebuilder:default=PreEmulated
	// +optional
	Warmth Warmth `json:"warmth,omitempty"`
	// ReleaseAfterSeconds is how long replicas outlive the last primary, and the last
	// pod that is to get the volume, in seconds. Empty: as long as snap-csi-plugin
	// keeps those of all volumes.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ReleaseAfterSeconds *int32 `json:"releaseAfterSeconds,omitempty"`
	// Failover says what happens when the primary's host dies.
	// +kubebuilder:default=Fence
	// +optional
	Failover FailoverMode `json:"failover,omitempty"`
	// PathTimeoutSeconds is for how long the way of the primary's DPU to the storage may
	// be lost, while that of another host's DPU is not, before the volume moves there
	// with failover Fence, in seconds. 0: it does not move by itself. Empty: 15.
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 10 && self <= 3600",message="pathTimeoutSeconds is 0, or from 10 to 3600"
	// +optional
	PathTimeoutSeconds *int32 `json:"pathTimeoutSeconds,omitempty"`
}

// PathTimeout is PathTimeoutSeconds, or what holds where it is empty; 0: the volume does
// not move by itself when a path is lost.
func (r *Replication) PathTimeout() time.Duration {
	switch {
	case r == nil || r.Failover != FailoverFence:
		return 0
	case r.PathTimeoutSeconds == nil:
		return DefaultPathTimeoutSeconds * time.Second
	}
	return time.Duration(*r.PathTimeoutSeconds) * time.Second
}

// DPUVolumePhase is where a volume is in its life.
// +kubebuilder:validation:Enum=Pending;Bound
type DPUVolumePhase string

// The phases of a DPUVolume.
const (
	DPUVolumePending DPUVolumePhase = "Pending"
	DPUVolumeBound   DPUVolumePhase = "Bound"
)

// VolumeInfo is what the vendor made.
type VolumeInfo struct {
	// Capacity that the vendor gave, in bytes under the key storage.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// AccessModes that the vendor gave.
	// +optional
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	// VolumeMode of the volume.
	// +optional
	VolumeMode *corev1.PersistentVolumeMode `json:"volumeMode,omitempty"`
	// VolumeAttributes are the vendor's volume context.
	// +optional
	VolumeAttributes map[string]string `json:"volumeAttributes,omitempty"`
	// MutableParameters that the vendor has put into effect. An addition of Moor.
	// +optional
	MutableParameters map[string]string `json:"mutableParameters,omitempty"`
	// AccessibleTopology are the places from which the volume is reached: each
	// names values of topology keys, as they are in status.topology of
	// DPUStorageNodes. Absent: from everywhere. An addition of Moor.
	// +optional
	AccessibleTopology []map[string]string `json:"accessibleTopology,omitempty"`
	// VolumeName is the vendor's PersistentVolume in the DPU cluster.
	// +optional
	VolumeName string `json:"volumeName,omitempty"`
}

// DPUVolumeState is what was chosen and made for a volume.
type DPUVolumeState struct {
	// DPUCluster where the vendor's claim lives.
	// +optional
	DPUCluster *ObjectReference `json:"dpuCluster,omitempty"`
	// Parameters of policy and volume, merged; the volume's win.
	// +optional
	Parameters map[string]string `json:"parameters,omitempty"`
	// SelectedDPUStorageVendorName is the vendor chosen.
	// +optional
	SelectedDPUStorageVendorName string `json:"selectedDPUStorageVendorName,omitempty"`
	// StorageVendorPluginName is that vendor's plugin.
	// +optional
	StorageVendorPluginName string `json:"storageVendorPluginName,omitempty"`
	// StorageClassName is that vendor's StorageClass.
	// +optional
	StorageClassName string `json:"storageClassName,omitempty"`
	// CSIDriverName is the provisioner of that StorageClass.
	// +optional
	CSIDriverName string `json:"csiDriverName,omitempty"`
	// PersistentVolumeClaimRef is the vendor's claim in the DPU cluster.
	// +optional
	PersistentVolumeClaimRef *ObjectReference `json:"persistentVolumeClaimRef,omitempty"`
	// VolumeInfo is what the vendor made.
	// +optional
	VolumeInfo *VolumeInfo `json:"volumeInfo,omitempty"`
}

// ReplicaState is how a volume's replicas are. Writer: snap-csi-plugin in
// controller mode.
type ReplicaState struct {
	// Wanted is how many replicas are wanted now.
	// +optional
	Wanted int32 `json:"wanted,omitempty"`
	// Missing is how many of them have no attachment.
	// +optional
	Missing int32 `json:"missing,omitempty"`
	// Placed says for people how many of those wanted have an attachment: "1/2". Empty
	// while none are wanted.
	// +optional
	Placed string `json:"placed,omitempty"`
	// PrimaryGoneSince is when the volume was first seen without a primary, and without
	// a pod that is to get it; the replicas are released some time after. Empty while
	// there is one of the two.
	// +optional
	PrimaryGoneSince *metav1.Time `json:"primaryGoneSince,omitempty"`
	// Message says why replicas are missing, or until when those of a volume that is
	// attached nowhere stay.
	// +optional
	Message string `json:"message,omitempty"`
}

// LastGrant is the last grant of the right to write a single-writer volume, as the host
// cluster has it. It outlives the attachments, and the DPU cluster.
// +kubebuilder:validation:XValidation:rule="self.epoch >= oldSelf.epoch",message="epoch never goes back"
// +kubebuilder:validation:XValidation:rule="self.epoch != oldSelf.epoch || (self.dpu == oldSelf.dpu && self.attachment == oldSelf.attachment && self.attachmentUID == oldSelf.attachmentUID)",message="an epoch is granted once: its DPU and attachment do not change"
// +kubebuilder:validation:XValidation:rule="self.epoch != oldSelf.epoch || !has(oldSelf.over) || !oldSelf.over || (has(self.over) && self.over)",message="an epoch that is over stays so"
type LastGrant struct {
	// Epoch that was granted.
	// +kubebuilder:validation:Minimum=1
	Epoch int64 `json:"epoch"`
	// DPU is the node name of the DPU that it was granted to.
	DPU string `json:"dpu"`
	// Attachment is the VolumeAttachment in the DPU cluster that it was granted for.
	Attachment string `json:"attachment"`
	// AttachmentUID is its UID.
	AttachmentUID types.UID `json:"attachmentUID"`
	// Over: there was a receipt, and no other grant since. It is written of volumes that
	// are attached nowhere; of others it is not known here whether the epoch is over.
	// +optional
	Over bool `json:"over,omitempty"`
}

// RestartState is how often pods were deleted because their mount of a volume was dead.
type RestartState struct {
	// Count of the times within an hour of one another.
	Count int32 `json:"count"`
	// Last of them.
	Last metav1.Time `json:"last"`
}

// DPUVolumeStatus is what the host controller sees. Writer:
// snap-host-controller; replicas: snap-csi-plugin in controller mode.
type DPUVolumeStatus struct {
	// Phase: Pending until the vendor's volume is there, then Bound.
	// +optional
	Phase DPUVolumePhase `json:"phase,omitempty"`
	// State is what was chosen and made.
	// +optional
	State *DPUVolumeState `json:"state,omitempty"`
	// Replicas is how the replicas are; absent if there are none and none are
	// wanted. An addition of Moor.
	// +optional
	Replicas *ReplicaState `json:"replicas,omitempty"`
	// LastGrant is the last grant of the right to write; absent if there was none. It is
	// written before a DPU can learn of the epoch, so none is shown under a later one. An
	// addition of Moor.
	// +optional
	LastGrant *LastGrant `json:"lastGrant,omitempty"`
	// Restarts is how often pods were deleted to mount the volume anew. An addition of Moor.
	// +optional
	Restarts *RestartState `json:"restarts,omitempty"`
	// Conditions: Ready, DPUVolumeReconciled, Scheduled, Bound; Expanded and
	// Modified once the volume was to grow, or to change; Healthy once something
	// was wrong with what the vendor had made; Accessible is False if it cannot
	// be had where it is to be reached from.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that Conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// DPUVolume is a volume that DPUs can show to their hosts. As with a claim, a
// request to grow that the vendor cannot meet may be taken back, to more than
// what the volume has.
// +kubebuilder:validation:XValidation:rule="!quantity(string(self.spec.resources.requests['storage'])).isLessThan(quantity(string(oldSelf.spec.resources.requests['storage']))) || (has(self.status) && has(self.status.state) && has(self.status.state.volumeInfo) && has(self.status.state.volumeInfo.capacity) && 'storage' in self.status.state.volumeInfo.capacity && quantity(string(self.spec.resources.requests['storage'])).isGreaterThan(quantity(string(self.status.state.volumeInfo.capacity['storage']))))",message="spec.resources.requests.storage can be lowered only while it stays above what the volume has"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.lastGrant) || (has(self.status) && has(self.status.lastGrant))",message="status.lastGrant never goes away: it holds the epoch that was"
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=moor,shortName=dpuv
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="DPUStoragePolicyName",type=string,JSONPath=`.spec.dpuStoragePolicyName`
// +kubebuilder:printcolumn:name="VolumeMode",type=string,JSONPath=`.spec.volumeMode`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.spec.resources.requests.storage`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Replicas",type=string,JSONPath=`.status.replicas.placed`
// +kubebuilder:printcolumn:name="Vendor",type=string,JSONPath=`.status.state.selectedDPUStorageVendorName`
// +kubebuilder:printcolumn:name="Last Writer",type=string,JSONPath=`.status.lastGrant.dpu`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DPUVolume struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DPUVolumeSpec   `json:"spec,omitempty"`
	Status DPUVolumeStatus `json:"status,omitempty"`
}

// DPUVolumeList is a list of DPUVolumes.
// +kubebuilder:object:root=true
type DPUVolumeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DPUVolume `json:"items"`
}
