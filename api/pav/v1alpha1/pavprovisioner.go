package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProvisioningMode is a way in which volumes come to be.
// +kubebuilder:validation:Enum=Dynamic;Static
type ProvisioningMode string

// The provisioning modes.
const (
	// Dynamic: by PersistentVolumeClaims of a StorageClass whose provisioner is this one.
	Dynamic ProvisioningMode = "Dynamic"
	// Static: by PersistentVolumes whose csi.driver is this one.
	Static ProvisioningMode = "Static"
)

// Every string beneath the following fields is a template. So that a template can stand for a
// value of any type, these have no type in the schema; the webhook compiles them, and checks what
// is no template. Fields that are not known are kept by the API server for the same reason:
// the webhook refuses them by their paths.

// VolumeValidation says which volumes can be had.
type VolumeValidation struct {
	// VolumeModes that volumes can have: a list of Filesystem and Block. Absent: Filesystem.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	VolumeModes *apiextensionsv1.JSON `json:"volumeModes,omitempty"`
	// AccessModes that volumes can have: a list of ReadWriteOnce, ReadOnlyMany, ReadWriteMany and
	// ReadWriteOncePod. Absent: the first three.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	AccessModes *apiextensionsv1.JSON `json:"accessModes,omitempty"`
	// MinCapacity is the least size: a quantity, or a number of bytes. Absent: 1 byte.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	MinCapacity *apiextensionsv1.JSON `json:"minCapacity,omitempty"`
	// MaxCapacity is the largest size. Absent: no limit.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	MaxCapacity *apiextensionsv1.JSON `json:"maxCapacity,omitempty"`
	PodPhase    `json:",inline"`
}

// VolumeCreation says how volumes are made; for provisioners with the mode Dynamic.
type VolumeCreation struct {
	// Handle of the volume. The file /pav/handle of the creation pod goes before it; with
	// neither, it is pvc-<UID of the claim>.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Handle *apiextensionsv1.JSON `json:"handle,omitempty"`
	// Capacity of the volume: a quantity, or a number of bytes. The file /pav/capacity of the
	// creation pod goes before it; one of the two is needed.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Capacity *apiextensionsv1.JSON `json:"capacity,omitempty"`
	PodPhase `json:",inline"`
}

// PodPhase is a pod that does a part of the work.
type PodPhase struct {
	// PodTemplate is a PodTemplateSpec of which metadata and spec count. Absent: nothing is to be
	// done. The pod runs in metadata.namespace, or in default.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	PodTemplate *apiextensionsv1.JSON `json:"podTemplate,omitempty"`
	// Timeout bounds the time from the creation of the pod until it has succeeded, or, when it
	// stages, until the volume is there; a pod that needs longer has failed. An addition of Moor's,
	// no template. Absent: 5 minutes.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// VolumeStaging says how volumes are made available on a node.
type VolumeStaging struct {
	// PodTemplate as in PodPhase. The pod is bound to the node. It has staged once it has
	// succeeded, or once there is a file /pav/ready; it may run on then.
	// +kubebuilder:validation:Required
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	PodTemplate *apiextensionsv1.JSON `json:"podTemplate"`
	// Timeout as in PodPhase.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// NodeSelector is which nodes may stage: those with these labels. An addition of Moor's, no
	// template. Absent: all.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
}

// VolumeRevocation says how the storage is told to accept nothing more of a volume from one DPU.
type VolumeRevocation struct {
	// PodTemplate as in PodPhase. The pod runs on any node but the DPU that loses the volume, has no
	// /pav, and vouches by its success (each container ends with exit code 0) that the storage accepts
	// nothing more of that volume from that DPU, whatever became of the DPU.
	// +kubebuilder:validation:Required
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	PodTemplate *apiextensionsv1.JSON `json:"podTemplate"`
	// Timeout as in PodPhase.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// PavProvisionerSpec is a provisioner. Writer: the admin. All strings but those of provisioningModes,
// timeout and nodeSelector are Jinja templates.
// +kubebuilder:validation:XValidation:rule="'Dynamic' in self.provisioningModes || !has(self.volumeCreation)",message="volumeCreation is for provisioningModes with Dynamic"
// +kubebuilder:validation:XValidation:rule="'Dynamic' in self.provisioningModes || !has(self.volumeDeletion)",message="volumeDeletion is for provisioningModes with Dynamic"
type PavProvisionerSpec struct {
	// ProvisioningModes are the ways in which volumes come to be; one at least.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +listType=set
	ProvisioningModes []ProvisioningMode `json:"provisioningModes"`
	// VolumeValidation says which volumes can be had; it is evaluated for dynamic volumes before
	// they are made, and for static ones before they are staged. Its pod runs for dynamic
	// volumes only.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	VolumeValidation *VolumeValidation `json:"volumeValidation,omitempty"`
	// VolumeCreation says how volumes are made.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	VolumeCreation *VolumeCreation `json:"volumeCreation,omitempty"`
	// VolumeDeletion says how volumes are removed, and what a creation that failed has left behind.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	VolumeDeletion *PodPhase `json:"volumeDeletion,omitempty"`
	// VolumeStaging says how volumes are made available on a node, at /pav/volume of the pod.
	// +kubebuilder:pruning:PreserveUnknownFields
	VolumeStaging VolumeStaging `json:"volumeStaging"`
	// VolumeUnstaging says how what the staging pod did is undone.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	VolumeUnstaging *PodPhase `json:"volumeUnstaging,omitempty"`
	// VolumeRevocation says how the right to write a volume is taken from a DPU at the storage, for a
	// failover from a DPU that does not answer. An addition of Moor's. Absent: the storage gives no receipt.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	VolumeRevocation *VolumeRevocation `json:"volumeRevocation,omitempty"`
}

// PavProvisionerStatus is what is seen of a provisioner. Writer: pod-provisioner (controller).
type PavProvisionerStatus struct {
	// Volumes is how many dynamic volumes there are, those included that are being made or
	// removed.
	// +optional
	Volumes int32 `json:"volumes"`
	// FailedVolumes is how many of them wait for a person: their deletion has failed.
	// +optional
	FailedVolumes int32 `json:"failedVolumes"`
	// Stagings is how many volumes are staged on nodes, or are about to be.
	// +optional
	Stagings int32 `json:"stagings"`
	// FailedStagings is how many of them wait for a person: their unstaging has failed.
	// +optional
	FailedStagings int32 `json:"failedStagings"`
	// Conditions: Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that Conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// PavProvisioner is a volume provisioner whose work is done by pods. Its name is the provisioner of
// StorageClasses and the csi.driver of PersistentVolumes.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=pav,categories=moor
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Volumes",type=integer,JSONPath=`.status.volumes`
// +kubebuilder:printcolumn:name="Stagings",type=integer,JSONPath=`.status.stagings`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 63",message="metadata.name has to be a DNS label of at most 63 characters: it is the name of a CSI driver"
type PavProvisioner struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:pruning:PreserveUnknownFields
	Spec   PavProvisionerSpec   `json:"spec"`
	Status PavProvisionerStatus `json:"status,omitempty"`
}

// PavProvisionerList is a list of PavProvisioners.
// +kubebuilder:object:root=true
type PavProvisionerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PavProvisioner `json:"items"`
}

// FinalizerProvisioner keeps a PavProvisioner, and its CSIDriver, while volumes of it are there or are
// staged.
const FinalizerProvisioner = "storage.moor.dev/pavprovisioner"

// ConditionReady is True of a PavProvisioner while its volumes can be made and staged.
const ConditionReady = "Ready"

// Reasons of the condition Ready.
const (
	// ReasonReady: it serves.
	ReasonReady = "Ready"
	// ReasonInvalid: the object cannot be compiled; the message has the path and what is wrong.
	ReasonInvalid = "Invalid"
	// ReasonDriverTaken: a CSIDriver of this name belongs to another.
	ReasonDriverTaken = "DriverTaken"
	// ReasonInUse: it is being deleted, and volumes of it are there; the message names some.
	ReasonInUse = "InUse"
)
