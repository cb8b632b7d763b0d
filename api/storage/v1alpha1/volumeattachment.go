package v1alpha1

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// VolumeAttachmentSource names the volume.
type VolumeAttachmentSource struct {
	// VolumeRef is a Volume in this cluster.
	// +optional
	VolumeRef *ObjectRef `json:"volumeRef,omitempty"`
}

// VolumeAttachmentSpec says which DPU is to show which volume. Writer:
// snap-host-controller; volumeAttachmentRef, parameters and capacity:
// snap-controller.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.nodeName) || size(oldSelf.nodeName) == 0 || (has(self.nodeName) && self.nodeName == oldSelf.nodeName)",message="nodeName is immutable once it is set: another DPU needs another attachment"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.source) || !has(oldSelf.source.volumeRef) || !has(oldSelf.source.volumeRef.name) || size(oldSelf.source.volumeRef.name) == 0 || (has(self.source) && has(self.source.volumeRef) && has(self.source.volumeRef.name) && self.source.volumeRef.name == oldSelf.source.volumeRef.name)",message="source.volumeRef.name is immutable once it is set: another volume needs another attachment"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.epoch) || oldSelf.epoch <= 0 || (has(self.epoch) && self.epoch >= oldSelf.epoch)",message="epoch never goes back"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.fenceEpoch) || oldSelf.fenceEpoch <= 0 || (has(self.fenceEpoch) && self.fenceEpoch >= oldSelf.fenceEpoch)",message="fenceEpoch never goes back"
type VolumeAttachmentSpec struct {
	// NodeName is the DPU: its node name in this cluster.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Source is the volume.
	// +optional
	Source VolumeAttachmentSource `json:"source,omitempty"`
	// VolumeAttachmentRef is the SVVolumeAttachment behind it.
	// +optional
	VolumeAttachmentRef *ObjectRef `json:"volumeAttachmentRef,omitempty"`
	// Parameters: the metadata of the vendor's ControllerPublish.
	// +optional
	Parameters map[string]string `json:"parameters,omitempty"`
	// Capacity that the volume has, as the vendor gave it: the DPU lets the
	// device have it. An addition of Moor.
	// +optional
	Capacity           *resource.Quantity `json:"capacity,omitempty"`
	FunctionTypeConfig `json:",inline"`
	// Role: Primary (default) or Replica. An addition of Moor.
	// +optional
	Role Role `json:"role,omitempty"`
	// Warmth of a Replica: PreEmulated (default) or Attached; a single
	// writer's is never shown. An addition of Moor.
	// +kubebuilder:validation:Enum=PreEmulated;Attached
	// +optional
	Warmth Warmth `json:"warmth,omitempty"`
	// Epoch of the WriterClaim under which this DPU may expose a
	// single-writer volume; 0 if none was granted. An addition of Moor.
	// +optional
	Epoch int64 `json:"epoch,omitempty"`
	// FenceEpoch asks for the storage's word that it accepts nothing of the volume
	// any more under an epoch below this one: the right to write is being taken from
	// this attachment. 0: it is not asked for. An addition of Moor.
	// +optional
	FenceEpoch int64 `json:"fenceEpoch,omitempty"`
}

// BdevAttrs identifies an NVMe namespace.
type BdevAttrs struct {
	// NVMeNsID is the namespace id within its controller.
	// +optional
	NVMeNsID int64 `json:"nvmeNsID,omitempty"`
	// NVMeUUID of the namespace.
	// +optional
	NVMeUUID string `json:"nvmeUUID,omitempty"`
}

// FsdevAttrs identifies a virtio-fs device.
type FsdevAttrs struct {
	// FilesystemTag that the host mounts.
	// +optional
	FilesystemTag string `json:"filesystemTag,omitempty"`
}

// VolumeAttachmentDPU is what the DPU shows. Writer: snap-node-driver of that
// DPU.
type VolumeAttachmentDPU struct {
	// Attached: the host sees the device.
	// +optional
	Attached bool `json:"attached,omitempty"`
	// PCIDeviceAddress of the function on the host.
	// +optional
	PCIDeviceAddress string `json:"pciDeviceAddress,omitempty"`
	// DeviceName of the backing device on the DPU.
	// +optional
	DeviceName string `json:"deviceName,omitempty"`
	// Provider: the SNAP service that shows the device, or is about to. It is
	// on record before the device is shown, so that a withdrawal asks this
	// service even if it has no socket now. Empty with a device: the driver that
	// showed it did not record it. An addition of Moor.
	// +optional
	Provider string `json:"provider,omitempty"`
	// Incarnation of that service; another one since means that it ended while it
	// may have shown the device. Empty after a withdrawal that every service has
	// confirmed. An addition of Moor.
	// +optional
	Incarnation string `json:"incarnation,omitempty"`
	// Undrained is an incarnation that ended while it may have shown the device:
	// what it had sent may still reach the storage, so no epoch is retired before
	// the drain time has passed. An addition of Moor.
	// +optional
	Undrained string `json:"undrained,omitempty"`
	// KeptEpoch: the host has seen the device under this epoch (0 of a volume
	// without epochs) by a SNAP service that ended since, and its function may keep
	// requests of the host. They are served by the next service under this epoch
	// alone, and discarded otherwise. Absent if there can be none. An addition of
	// Moor.
	// +optional
	KeptEpoch *int64 `json:"keptEpoch,omitempty"`
	// Capacity of that device, when the DPU looked last. An addition of Moor.
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`
	// FuncVUID of the function.
	// +optional
	FuncVUID string `json:"funcVUID,omitempty"`
	// BdevAttrs of an NVMe namespace.
	// +optional
	BdevAttrs *BdevAttrs `json:"bdevAttrs,omitempty"`
	// FsdevAttrs of a virtio-fs device.
	// +optional
	FsdevAttrs *FsdevAttrs `json:"fsdevAttrs,omitempty"`
	// Epoch under which the device is shown. An addition of Moor.
	// +optional
	Epoch int64 `json:"epoch,omitempty"`
	// OpenEpoch is the epoch under which the device is open at the storage; 0 if under
	// none yet. Absent: its vendor opens devices under no epochs. An addition of Moor.
	// +optional
	OpenEpoch *int64 `json:"openEpoch,omitempty"`
	// PreEmulated: all is made but the namespace is not attached; the host
	// sees nothing. An addition of Moor.
	// +optional
	PreEmulated bool `json:"preEmulated,omitempty"`
	// RetiredEpoch: this DPU has withdrawn the device after a fence, and
	// never again shows it under this epoch or an earlier one. An addition
	// of Moor.
	// +optional
	RetiredEpoch int64 `json:"retiredEpoch,omitempty"`
	// ClearedEpoch: this DPU has looked at all that SNAP shows, has withdrawn what
	// may be of this volume, for whatever attachment, and never again shows it
	// under this epoch or an earlier one. It is asked for by a WriterClaim that
	// was lost. An addition of Moor.
	// +optional
	ClearedEpoch int64 `json:"clearedEpoch,omitempty"`
	// Exhausted: the DPU has no function left for the device, and none is on
	// its way back. An addition of Moor.
	// +optional
	Exhausted bool `json:"exhausted,omitempty"`
}

// VolumeAttachmentStatus is what is seen of the attachment.
type VolumeAttachmentStatus struct {
	// StorageAttached: the vendor's storage lets the DPU use the volume.
	// Writer: snap-controller.
	// +optional
	StorageAttached bool `json:"storageAttached,omitempty"`
	// Message says what is waited for. Writer: snap-node-driver.
	// +optional
	Message string `json:"message,omitempty"`
	// StorageMessage says what the storage side waits for. Writer:
	// snap-controller. An addition of Moor.
	// +optional
	StorageMessage string `json:"storageMessage,omitempty"`
	// StorageDetaching: snap-controller has seen that the attachment is being
	// deleted, and asks the vendor for nothing more but to detach. Writer:
	// snap-controller. An addition of Moor.
	// +optional
	StorageDetaching bool `json:"storageDetaching,omitempty"`
	// Revocation is the word of the vendor's attacher that the DPU can no longer
	// reach the volume, for an attachment that ends. Absent: there is no such
	// word. Writer: the attacher, which is snap-external-attacher, or pod-provisioner (controller) for a volume of a
	// PavProvisioner. An addition of Moor.
	// +optional
	Revocation *StorageRevocation `json:"revocation,omitempty"`
	// Fence is the word of the vendor's attacher that the storage accepts nothing of
	// the volume any more under an epoch below one. Absent: there is no such word.
	// Writer: snap-external-attacher. An addition of Moor.
	// +optional
	Fence *StorageFence `json:"fence,omitempty"`
	// DPU is what the DPU shows.
	// +optional
	DPU VolumeAttachmentDPU `json:"dpu,omitempty"`
}

// StorageRevocation says that a ControllerUnpublish of the vendor, or a revocation pod, is done, after
// which the vendor is not asked to attach again for this attachment.
type StorageRevocation struct {
	// AttachmentUID is the UID of the VolumeAttachment for which that was done:
	// of another one it says nothing.
	AttachmentUID types.UID `json:"attachmentUID"`
	// NodeID is what the vendor calls the DPU.
	NodeID string `json:"nodeID"`
	// Time when it was done, by the attacher's clock.
	Time metav1.Time `json:"time"`
}

// StorageFence says that a Fence of the vendor's FencingService was answered.
type StorageFence struct {
	// AttachmentUID is the UID of the VolumeAttachment for which that was asked: on
	// another one the word does not count.
	AttachmentUID types.UID `json:"attachmentUID"`
	// Epoch below which the storage accepts nothing.
	// +kubebuilder:validation:Minimum=1
	Epoch int64 `json:"epoch"`
	// Time when it was answered, by the attacher's clock; for people.
	Time metav1.Time `json:"time"`
}

// VolumeAttachment is a DPUVolumeAttachment as the DPU cluster knows it.
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=moor
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.dpu) || !has(oldSelf.status.dpu.retiredEpoch) || oldSelf.status.dpu.retiredEpoch <= 0 || (has(self.status) && has(self.status.dpu) && has(self.status.dpu.retiredEpoch) && self.status.dpu.retiredEpoch >= oldSelf.status.dpu.retiredEpoch)",message="status.dpu.retiredEpoch never goes back: an epoch that is over stays over"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.dpu) || !has(oldSelf.status.dpu.clearedEpoch) || oldSelf.status.dpu.clearedEpoch <= 0 || (has(self.status) && has(self.status.dpu) && has(self.status.dpu.clearedEpoch) && self.status.dpu.clearedEpoch >= oldSelf.status.dpu.clearedEpoch)",message="status.dpu.clearedEpoch never goes back: what a DPU has cleared up after stays so"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.fence) || (has(self.status) && has(self.status.fence) && self.status.fence.epoch >= oldSelf.status.fence.epoch)",message="status.fence never goes back: what the storage refuses it refuses for ever"
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:selectablefield:JSONPath=`.spec.source.volumeRef.name`
// +kubebuilder:printcolumn:name="Volume",type=string,JSONPath=`.spec.source.volumeRef.name`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.spec.epoch`
// +kubebuilder:printcolumn:name="Attached",type=boolean,JSONPath=`.status.dpu.attached`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VolumeAttachment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VolumeAttachmentSpec   `json:"spec,omitempty"`
	Status VolumeAttachmentStatus `json:"status,omitempty"`
}

// VolumeName is the name of the attachment's Volume, "" if it names none.
func (a *VolumeAttachment) VolumeName() string {
	if ref := a.Spec.Source.VolumeRef; ref != nil {
		return ref.Name
	}
	return ""
}

// IsReplica reports whether the attachment only keeps the volume ready on its DPU.
func (a *VolumeAttachment) IsReplica() bool { return a.Spec.Role == RoleReplica }

// ShownAsReplica reports whether the host sees the volume's device even while the
// attachment is a replica.
func (a *VolumeAttachment) ShownAsReplica() bool { return a.Spec.Warmth == WarmthAttached }

// VolumeAttachmentList is a list of VolumeAttachments.
// +kubebuilder:object:root=true
type VolumeAttachmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VolumeAttachment `json:"items"`
}

// SVVolumeAttachment asks the vendor's CSI controller to let a DPU use a
// volume. Spec and status are those of storage.k8s.io/v1 VolumeAttachment.
// Writer: spec snap-controller; status snap-external-attacher, or pod-provisioner (controller) for a volume of a
// PavProvisioner.
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=moor,shortName=svva
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="PV",type=string,JSONPath=`.spec.source.persistentVolumeName`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Attached",type=boolean,JSONPath=`.status.attached`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SVVolumeAttachment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   storagev1.VolumeAttachmentSpec   `json:"spec,omitempty"`
	Status storagev1.VolumeAttachmentStatus `json:"status,omitempty"`
}

// SVVolumeAttachmentList is a list of SVVolumeAttachments.
// +kubebuilder:object:root=true
type SVVolumeAttachmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SVVolumeAttachment `json:"items"`
}
