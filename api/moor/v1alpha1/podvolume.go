package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// PodVolumePhase is where the making or removing of a PodVolume stands.
// +kubebuilder:validation:Enum=Validating;Creating;Created;Reverting;Failed;Deleting;DeletionFailed;Deleted
type PodVolumePhase string

// The phases of a PodVolume. Each but Created and the last two of a way has a pod that runs, if the
// provisioner names one.
const (
	// PodVolumeValidating: the validation pod runs.
	PodVolumeValidating PodVolumePhase = "Validating"
	// PodVolumeCreating: the creation pod runs.
	PodVolumeCreating PodVolumePhase = "Creating"
	// PodVolumeCreated: the volume is there.
	PodVolumeCreated PodVolumePhase = "Created"
	// PodVolumeReverting: the creation pod has failed, and the deletion pod runs.
	PodVolumeReverting PodVolumePhase = "Reverting"
	// PodVolumeFailed: the volume is not there, and nothing of it is left. The next try is another
	// object.
	PodVolumeFailed PodVolumePhase = "Failed"
	// PodVolumeDeleting: the deletion pod runs.
	PodVolumeDeleting PodVolumePhase = "Deleting"
	// PodVolumeDeletionFailed: the deletion pod has failed, when the volume was to be removed or
	// its creation to be undone. It is begun again by itself, and by AnnotationRetry at once.
	PodVolumeDeletionFailed PodVolumePhase = "DeletionFailed"
	// PodVolumeDeleted: nothing is left but this object, which goes.
	PodVolumeDeleted PodVolumePhase = "Deleted"
)

// PodVolumeSpec is what the volume is made for. It does not change. Writer: pod-provisioner
// (controller).
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of a PodVolume is immutable"
type PodVolumeSpec struct {
	// ProvisionerName is the PavProvisioner.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ProvisionerName string `json:"provisionerName"`
	// Claim is the PersistentVolumeClaim as it was when the volume was asked for. Templates that
	// are evaluated when it is gone see this.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Claim runtime.RawExtension `json:"claim"`
	// Class is the StorageClass as it was then: it may change or go while the volume is there.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Class runtime.RawExtension `json:"class"`
}

// HelperPod is the pod that works for a volume now.
type HelperPod struct {
	// Namespace and Name of the pod.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID of the pod; empty until it is seen. A pod of the same name and another UID is another.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// NodeName is where it runs; empty until it is scheduled.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Since is when it was asked for: its timeout runs from then.
	Since metav1.Time `json:"since"`
}

// HelperTries says how the pod was tried again that undoes what another has done, or that revokes.
type HelperTries struct {
	// Retried is the value of AnnotationRetry that was last acted upon.
	// +optional
	Retried string `json:"retried,omitempty"`
	// Failures is how often it has failed in a row, since a person last had it tried again. It is tried
	// again by itself 5 s after the first, twice as long after each further one, 5 minutes at most.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// LastFailure is when it failed last.
	// +optional
	LastFailure *metav1.Time `json:"lastFailure,omitempty"`
}

// PodReport is what a pod has left in /pav, as pod-provisioner (node) of the node reads it. It is
// written once, when the pod has ended or has written /pav/ready.
type PodReport struct {
	// PodUID is the pod that it is of. A report of another pod than the present one counts for
	// nothing.
	PodUID types.UID `json:"podUID"`
	// Ready is true if /pav/ready is there.
	// +optional
	Ready bool `json:"ready,omitempty"`
	// Handle is what /pav/handle holds, without one newline at its end; absent if there is no such
	// file.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Handle *string `json:"handle,omitempty"`
	// Capacity is what /pav/capacity holds, likewise.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Capacity *string `json:"capacity,omitempty"`
	// Error is what /pav/error holds, cut to 1024 characters.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Error string `json:"error,omitempty"`
	// Problem is why /pav could not be read, or what is wrong with what it holds; the pod counts
	// as failed then.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Problem string `json:"problem,omitempty"`
}

// PodVolumeStatus is where a PodVolume stands. Writer: pod-provisioner (controller), but for report.
type PodVolumeStatus struct {
	// Phase is empty until the first pass.
	// +optional
	Phase PodVolumePhase `json:"phase,omitempty"`
	// Pod that works now; absent between two.
	// +optional
	Pod *HelperPod `json:"pod,omitempty"`
	// Report of a pod. Writer: pod-provisioner (node) of the node where the pod ran.
	// +optional
	Report *PodReport `json:"report,omitempty"`
	// Handle of the volume, from Created on.
	// +optional
	Handle string `json:"handle,omitempty"`
	// CapacityBytes of the volume, from Created on.
	// +optional
	CapacityBytes int64 `json:"capacityBytes,omitempty"`
	// Message says what is waited for, or what went wrong, in words for the user of the claim.
	// +optional
	Message string `json:"message,omitempty"`

	HelperTries `json:",inline"`
}

// PodVolume is a dynamic volume of a PavProvisioner. Its name is that of its PersistentVolume,
// pvc-<UID of the claim>. It is deleted when the volume is to be removed.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=moor,shortName=podv
// +kubebuilder:printcolumn:name="Provisioner",type=string,JSONPath=`.spec.provisionerName`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.status.pod.name`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.provisionerName`
type PodVolume struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PodVolumeSpec   `json:"spec"`
	Status PodVolumeStatus `json:"status,omitempty"`
}

// PodVolumeList is a list of PodVolumes.
// +kubebuilder:object:root=true
type PodVolumeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodVolume `json:"items"`
}

// PodStagingPhase is where the staging of a volume on a node stands.
// +kubebuilder:validation:Enum=Staging;Staged;Broken;Reverting;Failed;Unstaging;UnstagingFailed;Unstaged
type PodStagingPhase string

// The phases of a PodStaging.
const (
	// PodStagingStaging: the staging pod runs, and the volume is not there yet.
	PodStagingStaging PodStagingPhase = "Staging"
	// PodStagingStaged: the volume is at /pav/volume, whether the pod runs on or has ended.
	PodStagingStaged PodStagingPhase = "Staged"
	// PodStagingBroken: the volume was there, and its pod, which had to run on, has died. It is
	// staged again as soon as that can be done without taking it from its user.
	PodStagingBroken PodStagingPhase = "Broken"
	// PodStagingReverting: the staging pod has failed, and the unstaging pod runs.
	PodStagingReverting PodStagingPhase = "Reverting"
	// PodStagingFailed: the volume is not there, and what the staging pod did is undone. The next
	// try is another object.
	PodStagingFailed PodStagingPhase = "Failed"
	// PodStagingUnstaging: the staging pod is gone, or goes, or keeps the volumes of its claims there,
	// and the unstaging pod runs.
	PodStagingUnstaging PodStagingPhase = "Unstaging"
	// PodStagingUnstagingFailed: the unstaging pod has failed. It is begun again by itself, and by
	// AnnotationRetry at once.
	PodStagingUnstagingFailed PodStagingPhase = "UnstagingFailed"
	// PodStagingUnstaged: nothing is left but this object, which goes.
	PodStagingUnstaged PodStagingPhase = "Unstaged"
)

// PodStagingSpec is what is to be staged, where, and what for. It does not change. Writer:
// pod-provisioner (node) of that node.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of a PodStaging is immutable"
type PodStagingSpec struct {
	// ProvisionerName is the PavProvisioner.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ProvisionerName string `json:"provisionerName"`
	// VolumeName is the PersistentVolume.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	VolumeName string `json:"volumeName"`
	// NodeName is the node that stages it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`
	// User is what uses the volume there.
	User StagingUser `json:"user"`
	// ReadOnly is how it is used.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`
}

// StagingUserKind is a kind of objects that use staged volumes.
// +kubebuilder:validation:Enum=Pod;VolumeAttachment
type StagingUserKind string

// The kinds of users.
const (
	// PodUser is a pod of the node.
	PodUser StagingUserKind = "Pod"
	// AttachmentUser is a VolumeAttachment of group storage.dpu.nvidia.com: the node is a DPU, which
	// shows the volume to its host.
	AttachmentUser StagingUserKind = "VolumeAttachment"
)

// StagingUser is what uses a volume.
type StagingUser struct {
	// Kind of the user. Not set: Pod.
	// +kubebuilder:default=Pod
	// +optional
	Kind StagingUserKind `json:"kind,omitempty"`
	// Namespace of the user.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name of the user.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// UID of the user.
	UID types.UID `json:"uid"`
}

// IsPod reports whether a pod uses the volume.
func (u StagingUser) IsPod() bool { return u.Kind == "" || u.Kind == PodUser }

// String names the user in words.
func (u StagingUser) String() string {
	if u.IsPod() {
		return "pod " + u.Namespace + "/" + u.Name
	}
	return string(u.Kind) + " " + u.Namespace + "/" + u.Name
}

// StagingReport is a PodReport with what the node found at /pav/volume.
type StagingReport struct {
	PodReport `json:",inline"`
	// VolumeMode is what /pav/volume is: a directory, Filesystem, or a block special file,
	// Block; empty if it is not there.
	// +optional
	VolumeMode corev1.PersistentVolumeMode `json:"volumeMode,omitempty"`
	// SizeBytes of the block device; 0 of a directory.
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// BootID is the boot of the node in which it was read: what was mounted then is gone after
	// another one.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	BootID string `json:"bootID,omitempty"`
	// Cleared is true once nothing of /pav is left on the node: no mount and no file. Only said
	// when no pod of the staging is there any more.
	// +optional
	Cleared bool `json:"cleared,omitempty"`
}

// PodStagingStatus is where a PodStaging stands. Writer: pod-provisioner (controller), but for
// report.
type PodStagingStatus struct {
	// Phase is empty until the first pass.
	// +optional
	Phase PodStagingPhase `json:"phase,omitempty"`
	// Pod that works now, or that keeps the volume there; absent between two.
	// +optional
	Pod *HelperPod `json:"pod,omitempty"`
	// Directory is the name of the directory, beneath the root of all of them, that is /pav of the
	// pods of this staging.
	// +optional
	Directory string `json:"directory,omitempty"`
	// Report of the pod. Writer: pod-provisioner (node) of spec.nodeName.
	// +optional
	Report *StagingReport `json:"report,omitempty"`
	// RevokedFor is the UID of the VolumeAttachment whose right to write is being taken from the node
	// at the storage: once it is set, no staging pod is made for this any more.
	// +optional
	RevokedFor types.UID `json:"revokedFor,omitempty"`
	// Message says what is waited for, or what went wrong, in words for the user of the pod.
	// +optional
	Message string `json:"message,omitempty"`

	HelperTries `json:",inline"`
}

// PodStaging is a volume of a PavProvisioner on a node, for one user. It is deleted when that has no
// use for it any more.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=moor,shortName=podstg
// +kubebuilder:printcolumn:name="Volume",type=string,JSONPath=`.spec.volumeName`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="User",type=string,JSONPath=`.spec.user.name`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.provisionerName`
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
type PodStaging struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PodStagingSpec   `json:"spec"`
	Status PodStagingStatus `json:"status,omitempty"`
}

// PodStagingList is a list of PodStagings.
// +kubebuilder:object:root=true
type PodStagingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodStaging `json:"items"`
}

// What is written on the objects of pods as volumes, and on the pods that work for them.
const (
	// FinalizerPodVolume keeps a PodVolume until the deletion pod has succeeded.
	FinalizerPodVolume = "storage.moor.dev/podvolume"
	// FinalizerPodStaging keeps a PodStaging until the unstaging pod has succeeded and its node
	// is clean.
	FinalizerPodStaging = "storage.moor.dev/podstaging"
	// AnnotationRetry, on a PodVolume, PodStaging or PodRevocation whose deletion, unstaging or revocation
	// has failed, begins it again at once, each time that its value is another.
	AnnotationRetry = "storage.moor.dev/retry"
	// LabelPodVolume is the UID of the PodVolume that a pod works for.
	LabelPodVolume = "storage.moor.dev/podvolume"
	// LabelPodStaging is the UID of the PodStaging that a pod works for.
	LabelPodStaging = "storage.moor.dev/podstaging"
	// LabelHelperPhase is on each pod that works for a PodVolume, PodStaging or PodRevocation: its phase
	// (validation, creation, deletion, staging, unstaging or revocation). By it all of them can be watched.
	LabelHelperPhase = "storage.moor.dev/helper-phase"
	// AnnotationConcurrentStaging, on a PavProvisioner, is "true" if its staging pods may run on several
	// DPUs at once also for volumes that one node may write at a time: they change nothing of the volume by
	// themselves, and what a DPU does not show to its host is not written. With it such volumes have
	// replicas. Writer: the admin.
	AnnotationConcurrentStaging = "storage.moor.dev/concurrent-staging"
	// AnnotationOffered, on a PodVolume that is Created, says that a PersistentVolume is made of it:
	// from then on the reclaim policy of that one decides what becomes of the volume, even if it is
	// gone itself. Writer: pod-provisioner (controller).
	AnnotationOffered = "storage.moor.dev/offered"
)
