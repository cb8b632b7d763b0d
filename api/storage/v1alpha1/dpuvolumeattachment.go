package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DPUVolumeAttachmentSpec says which host is to see which volume. Writer: the
// CSI controller, the replica controller (role Replica), or the user in
// zero-trust mode.
// +kubebuilder:validation:XValidation:rule="!self.hotplugFunction || self.functionType == 'pf'",message="hotplugFunction can be true only with functionType pf"
// +kubebuilder:validation:XValidation:rule="self.dpuNodeName == oldSelf.dpuNodeName",message="dpuNodeName is immutable"
// +kubebuilder:validation:XValidation:rule="self.dpuVolumeName == oldSelf.dpuVolumeName",message="dpuVolumeName is immutable"
// +kubebuilder:validation:XValidation:rule="self.functionType == oldSelf.functionType",message="functionType is immutable"
// +kubebuilder:validation:XValidation:rule="self.hotplugFunction == oldSelf.hotplugFunction",message="hotplugFunction is immutable"
// +kubebuilder:validation:XValidation:rule="!has(self.role) || self.role == 'Primary' || (has(oldSelf.role) && oldSelf.role == 'Replica')",message="role can only change from Replica to Primary: delete the attachment instead, which gives the right to write back"
// +kubebuilder:validation:XValidation:rule="(has(self.requester) ? self.requester : 'Controller') == (has(oldSelf.requester) ? oldSelf.requester : 'Controller') || (has(oldSelf.role) && oldSelf.role == 'Replica' && self.role == 'Primary')",message="requester can only change with the promotion of a Replica"
// +kubebuilder:validation:XValidation:rule="!has(self.requester) || self.requester != 'Node' || !has(self.role) || self.role == 'Primary'",message="a Node asks for a Primary only"
// +kubebuilder:validation:XValidation:rule="(has(self.readOnly) && self.readOnly) == (has(oldSelf.readOnly) && oldSelf.readOnly)",message="readOnly is immutable"
type DPUVolumeAttachmentSpec struct {
	// DPUNodeName is the host: the name of a DPUNode and of its Node.
	// +kubebuilder:validation:MinLength=1
	DPUNodeName string `json:"dpuNodeName"`
	// DPUVolumeName names a DPUVolume in the same namespace.
	// +kubebuilder:validation:MinLength=1
	DPUVolumeName      string `json:"dpuVolumeName"`
	FunctionTypeConfig `json:",inline"`
	// Role: Primary (default) or Replica. A Replica becomes the Primary by a
	// change of this field; never the other way. An addition of Moor.
	// +kubebuilder:default=Primary
	// +optional
	Role Role `json:"role,omitempty"`
	// Warmth of a Replica: PreEmulated (default) or, for volumes that several
	// hosts may have at once, Attached. Nothing to a Primary. An addition of
	// Moor.
	// +kubebuilder:validation:Enum=PreEmulated;Attached
	// +optional
	Warmth Warmth `json:"warmth,omitempty"`
	// ReadOnly: the host uses the volume for reading only; its node service
	// mounts it so. An addition of Moor.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`
	// Requester: Controller (absent means that, and the user) or Node. A Node's
	// request is granted only while a pod that is bound to that node uses the
	// volume. Only the promotion of a Replica can change it. An addition of Moor.
	// +optional
	Requester Requester `json:"requester,omitempty"`
}

// Requester is who asks for an attachment.
// +kubebuilder:validation:Enum=Controller;Node
type Requester string

// The requesters.
const (
	// RequesterController is the CSI controller, the replica controller or the user.
	RequesterController Requester = "Controller"
	// RequesterNode is the node plugin of the host itself.
	RequesterNode Requester = "Node"
)

// OfNode reports whether the host's own node plugin asks for the attachment.
func (s *DPUVolumeAttachmentSpec) OfNode() bool { return s.Requester == RequesterNode }

// NVMeAttrs identifies an NVMe namespace as the host sees it.
type NVMeAttrs struct {
	// NamespaceID within its controller, from 1.
	// +optional
	NamespaceID int64 `json:"namespaceID,omitempty"`
	// NamespaceUUID is the namespace's UUID; it never changes.
	// +optional
	NamespaceUUID string `json:"namespaceUUID,omitempty"`
}

// VirtioFSAttrs identifies a virtio-fs device as the host sees it.
type VirtioFSAttrs struct {
	// FilesystemTag to mount, at most 36 bytes.
	// +optional
	FilesystemTag string `json:"filesystemTag,omitempty"`
}

// AttachedDPU is what the DPU shows to the host, or would show at once.
type AttachedDPU struct {
	// PCIAddress of the function on the host, "bus:device.function".
	// +optional
	PCIAddress string `json:"pciAddress,omitempty"`
	// FuncVUID is the function's vital unique identifier; a VF has its PF's.
	// +optional
	FuncVUID string `json:"funcVUID,omitempty"`
	// DeviceName is the name of the backing device on the DPU.
	// +optional
	DeviceName string `json:"deviceName,omitempty"`
	// NVMeAttrs of an NVMe namespace.
	// +optional
	NVMeAttrs *NVMeAttrs `json:"nvmeAttrs,omitempty"`
	// VirtioFSAttrs of a virtio-fs device.
	// +optional
	VirtioFSAttrs *VirtioFSAttrs `json:"virtioFSAttrs,omitempty"`
}

// DPUVolumeAttachmentStatus is what the host controller sees. Writer:
// snap-host-controller.
type DPUVolumeAttachmentStatus struct {
	// ControllerAttached: the vendor's storage lets the DPU use the volume.
	// +optional
	ControllerAttached *bool `json:"controllerAttached,omitempty"`
	// DPUAttached: the host sees the device.
	// +optional
	DPUAttached *bool `json:"dpuAttached,omitempty"`
	// AttachmentMetadata from the vendor's ControllerPublish.
	// +optional
	AttachmentMetadata map[string]string `json:"attachmentMetadata,omitempty"`
	// DPU is what the DPU shows; while dpuAttached is false and the condition
	// PreEmulated True, what it would show after a promotion.
	// +optional
	DPU *AttachedDPU `json:"dpu,omitempty"`
	// Epoch under which the device was shown. An addition of Moor.
	// +optional
	Epoch int64 `json:"epoch,omitempty"`
	// DPUCluster in which it is carried out, as "namespace/name" of the DPUCluster, where there
	// are several. It is set before anything is made there. An addition of Moor.
	// +optional
	DPUCluster string `json:"dpuCluster,omitempty"`
	// Warmth: how much of the way to the host is walked. Empty: nothing. An
	// addition of Moor.
	// +kubebuilder:validation:Enum=StorageAttached;PreEmulated;Attached
	// +optional
	Warmth Warmth `json:"warmth,omitempty"`
	// Message says what is waited for.
	// +optional
	Message string `json:"message,omitempty"`
	// Conditions: Ready, DPUVolumeAttachmentReconciled, ControllerAttached,
	// DPUAttached and, of a Replica, PreEmulated.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that Conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// DPUVolumeAttachment shows a DPUVolume to a host through its DPU.
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=moor,shortName=dpuva
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:selectablefield:JSONPath=`.spec.dpuNodeName`
// +kubebuilder:printcolumn:name="DPUVolumeName",type=string,JSONPath=`.spec.dpuVolumeName`
// +kubebuilder:printcolumn:name="DPUNodeName",type=string,JSONPath=`.spec.dpuNodeName`
// +kubebuilder:printcolumn:name="FunctionType",type=string,JSONPath=`.spec.functionType`
// +kubebuilder:printcolumn:name="HotplugFunction",type=boolean,JSONPath=`.spec.hotplugFunction`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.spec.role`
// +kubebuilder:printcolumn:name="Warmth",type=string,JSONPath=`.status.warmth`
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.status.epoch`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DPUVolumeAttachment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DPUVolumeAttachmentSpec   `json:"spec,omitempty"`
	Status DPUVolumeAttachmentStatus `json:"status,omitempty"`
}

// DPUVolumeAttachmentList is a list of DPUVolumeAttachments.
// +kubebuilder:object:root=true
type DPUVolumeAttachmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DPUVolumeAttachment `json:"items"`
}
