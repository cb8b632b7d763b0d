package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodRevocationPhase is where a PodRevocation stands.
// +kubebuilder:validation:Enum=Revoking;Revoked;Failed
type PodRevocationPhase string

// The phases of a PodRevocation.
const (
	// PodRevocationRevoking: the revocation pod runs.
	PodRevocationRevoking PodRevocationPhase = "Revoking"
	// PodRevocationRevoked: it has succeeded. What that counts for is looked at when the storage's
	// word is written.
	PodRevocationRevoked PodRevocationPhase = "Revoked"
	// PodRevocationFailed: it has failed, which proves nothing. It is begun again by itself, and
	// by AnnotationRetry at once.
	PodRevocationFailed PodRevocationPhase = "Failed"
)

// RevocationRequest is the SVVolumeAttachment whose deletion asks for the revocation.
type RevocationRequest struct {
	// Namespace and Name, which are those of the VolumeAttachment too.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// UID of the SVVolumeAttachment.
	UID types.UID `json:"uid"`
}

// PodRevocationSpec is what is to be revoked, of whom, and for what. It does not change. Writer:
// pod-provisioner (controller).
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of a PodRevocation is immutable"
type PodRevocationSpec struct {
	// ProvisionerName is the PavProvisioner.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ProvisionerName string `json:"provisionerName"`
	// VolumeName is the PersistentVolume, and VolumeUID its UID.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	VolumeName string    `json:"volumeName"`
	VolumeUID  types.UID `json:"volumeUID"`
	// NodeName is the DPU that loses the volume.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`
	// Request asks for it.
	Request RevocationRequest `json:"request"`
	// AttachmentUID is the UID of the VolumeAttachment whose right to write is being taken.
	AttachmentUID types.UID `json:"attachmentUID"`
	// Epoch of that right.
	// +kubebuilder:validation:Minimum=1
	Epoch int64 `json:"epoch"`
}

// PodRevocationStatus is where a PodRevocation stands. Writer: pod-provisioner (controller).
type PodRevocationStatus struct {
	// Phase is empty until the first pass.
	// +optional
	Phase PodRevocationPhase `json:"phase,omitempty"`
	// Pod that works, or has worked; absent before.
	// +optional
	Pod *HelperPod `json:"pod,omitempty"`
	// Began is when the pod was made, by the API server's clock: a volume that is staged on the DPU
	// later is not revoked by it.
	// +optional
	Began *metav1.Time `json:"began,omitempty"`
	// ProvisionerUID and Template are the PavProvisioner and a hash of its volumeRevocation from which
	// the pod was made: of another template its success says nothing.
	// +optional
	ProvisionerUID types.UID `json:"provisionerUID,omitempty"`
	// +optional
	Template string `json:"template,omitempty"`
	// Message says what is waited for, or what went wrong.
	// +optional
	Message string `json:"message,omitempty"`

	HelperTries `json:",inline"`
}

// PodRevocation has a pod tell the storage behind a volume of a PavProvisioner to accept nothing more of
// it from one DPU. It is made when a failover asks for that, and deleted once the word of the storage is
// written, or is not needed any more.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=moor,shortName=podrev
// +kubebuilder:printcolumn:name="Volume",type=string,JSONPath=`.spec.volumeName`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.spec.epoch`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PodRevocation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PodRevocationSpec   `json:"spec"`
	Status PodRevocationStatus `json:"status,omitempty"`
}

// PodRevocationList is a list of PodRevocations.
// +kubebuilder:object:root=true
type PodRevocationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodRevocation `json:"items"`
}

const (
	// FinalizerPodRevocation keeps a PodRevocation until its pod is gone, and an SVVolumeAttachment of a
	// volume of a PavProvisioner until the storage's word is written or not needed.
	FinalizerPodRevocation = "storage.moor.dev/podrevocation"
	// LabelPodRevocation is the UID of the PodRevocation that a pod works for.
	LabelPodRevocation = "storage.moor.dev/podrevocation"
)
