package v1alpha1

// FunctionType is the kind of PCI function through which a host sees a volume.
// +kubebuilder:validation:Enum=pf;vf
type FunctionType string

// The function types.
const (
	FunctionTypePF FunctionType = "pf"
	FunctionTypeVF FunctionType = "vf"
)

// FunctionTypeConfig chooses the emulated function. Writer: whoever creates
// the attachment.
type FunctionTypeConfig struct {
	// FunctionType is pf (physical function) or vf (virtual function).
	FunctionType FunctionType `json:"functionType"`
	// HotplugFunction asks for a function that is plugged in for this volume
	// alone; only with functionType pf.
	HotplugFunction bool `json:"hotplugFunction"`
}

// ObjectReference names an object of which namespace and name are known.
type ObjectReference struct {
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Namespace of the object.
	// +kubebuilder:validation:MinLength=1
	Namespace string `json:"namespace"`
}

// ObjectRef names an object in the DPU cluster.
type ObjectRef struct {
	// Kind of the object.
	// +optional
	Kind string `json:"kind,omitempty"`
	// APIVersion of the object.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// Name of the object.
	// +optional
	Name string `json:"name,omitempty"`
	// Namespace of the object.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// Role says what an attachment is for. An addition of Moor.
// +kubebuilder:validation:Enum=Primary;Replica
type Role string

// The roles of an attachment.
const (
	// RolePrimary is the attachment through which pods use the volume.
	RolePrimary Role = "Primary"
	// RoleReplica is kept ready on another host, so that a failover is quick.
	RoleReplica Role = "Replica"
)

// Finalizers. The strings are DPF's; users' scripts know them.
const (
	FinalizerDPUStorageVendor    = "storage.dpu.nvidia.com/dpustoragevendor"
	FinalizerDPUStoragePolicy    = "storage.dpu.nvidia.com/dpustoragepolicy"
	FinalizerDPUVolume           = "storage.dpu.nvidia.com/dpuvolume"
	FinalizerDPUVolumeAttachment = "storage.dpu.nvidia.com/dpuvolumeattachment"
	FinalizerVolume              = "storage.nvidia.com/volume-protection"
	FinalizerVolumeAttachment    = "storage.nvidia.com/attachment-protection"
	FinalizerDPUAttachment       = "storage.nvidia.com/dpu-attachment-protection"
)

// Annotations by which objects in the DPU cluster name their owner in the
// host cluster, as "<namespace>/<name>".
const (
	AnnotationOwnedByDPUVolume           = "storage.dpu.nvidia.com/owned-by-dpuvolume"
	AnnotationOwnedByDPUVolumeAttachment = "storage.dpu.nvidia.com/owned-by-dpuvolumeattachment"
)

// Condition types of the DPU* kinds.
const (
	ConditionReady                         = "Ready"
	ConditionValid                         = "Valid"
	ConditionScheduled                     = "Scheduled"
	ConditionBound                         = "Bound"
	ConditionControllerAttached            = "ControllerAttached"
	ConditionDPUAttached                   = "DPUAttached"
	ConditionDPUStorageVendorReconciled    = "DPUStorageVendorReconciled"
	ConditionDPUStoragePolicyReconciled    = "DPUStoragePolicyReconciled"
	ConditionDPUVolumeReconciled           = "DPUVolumeReconciled"
	ConditionDPUVolumeAttachmentReconciled = "DPUVolumeAttachmentReconciled"
)

// ConditionPreEmulated is True on a Replica whose device and controller stand
// on its DPU and whose namespace is not attached: promotion is one call. An
// addition of Moor.
const ConditionPreEmulated = "PreEmulated"

// Conditions of a DPUVolume that was to change after it was made. Reason Failure:
// the vendor refuses for good. Additions of Moor.
const (
	// ConditionExpanded is True if the volume has the size that is asked for.
	ConditionExpanded = "Expanded"
	// ConditionModified is True if the volume has the mutable parameters that
	// are asked for.
	ConditionModified = "Modified"
)

// ConditionHealthy is on a DPUVolume once something was wrong with what the
// vendor had made of it, such as a claim that is gone. An addition of Moor.
const ConditionHealthy = "Healthy"

// ConditionAccessible is False on a DPUVolume that no vendor makes, or that was
// made elsewhere, for the places of spec.accessibleFrom: as things are it will
// not be Bound. An addition of Moor.
const ConditionAccessible = "Accessible"

// Condition reasons, DPF's vocabulary.
const (
	ReasonSuccess          = "Success"
	ReasonPending          = "Pending"
	ReasonError            = "Error"
	ReasonFailure          = "Failure"
	ReasonAwaitingDeletion = "AwaitingDeletion"
)

// MostPlaces is how many places a list of them has at most: what it names comes
// by preference, so that one of the first is as good as one of all. It is the
// maxItems of the CRDs. An addition of Moor.
const MostPlaces = 256

// ReasonExhausted of DPUAttached: the DPU has no function left for the device,
// and none is on its way back. An addition of Moor.
const ReasonExhausted = "Exhausted"

// FinalizerWriterClaim keeps a VolumeAttachment of a single-writer volume
// until the right to write has been taken back from its DPU, with a receipt.
// An addition of Moor.
const FinalizerWriterClaim = "storage.moor.dev/writer-claim"

// LabelReplicaOf marks the replicas that the replica controller made; its
// value is the volume's name, or the hex FNV-128 of it where a label may not
// have that. It stays when a replica is promoted. An addition of Moor.
const LabelReplicaOf = "storage.moor.dev/replica-of"
