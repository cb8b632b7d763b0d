package v1alpha1

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

// ConditionMountHealthy is on a DPUVolumeAttachment once a mount of the volume on its host
// was of no use any more. An addition of Moor.
const ConditionMountHealthy = "MountHealthy"

// ReasonMountDead of ConditionMountHealthy.
const ReasonMountDead = "MountDead"

// ConditionPathHealthy is on a DPUVolumeAttachment once the way of its DPU to the storage of
// the volume was lost, and on a DPUVolume once that was so of one of its DPUs. An addition of
// Moor.
const ConditionPathHealthy = "PathHealthy"

// Reasons of ConditionPathHealthy.
const (
	// ReasonPathLost: of this attachment; of a DPUVolume: of some of its DPUs.
	ReasonPathLost = "PathLost"
	// ReasonAllPathsLost of a DPUVolume: no DPU that has it reaches the storage.
	ReasonAllPathsLost = "AllPathsLost"
)

// ConditionAccessible is False on a DPUVolume that no vendor makes, or that was
// made elsewhere, for the places of spec.accessibleFrom: as things are it will
// not be Bound. An addition of Moor.
const ConditionAccessible = "Accessible"

// ConditionAsRecommended is False on a DPUStorageVendor that works, but is set up in a way that
// is seldom meant; the message says what follows from it. Ready does not depend on it. An addition
// of Moor.
const ConditionAsRecommended = "AsRecommended"

// Condition reasons, DPF's vocabulary.
const (
	ReasonSuccess          = "Success"
	ReasonPending          = "Pending"
	ReasonError            = "Error"
	ReasonFailure          = "Failure"
	ReasonAwaitingDeletion = "AwaitingDeletion"
)

// ReasonWarning of AsRecommended. An addition of Moor.
const ReasonWarning = "Warning"

// ReasonExhausted of DPUAttached: the DPU has no function left for the device,
// and none is on its way back. An addition of Moor.
const ReasonExhausted = "Exhausted"

// FinalizerWriterClaim keeps a VolumeAttachment of a single-writer volume
// until the right to write has been taken back from its DPU, with a receipt.
// An addition of Moor.
const FinalizerWriterClaim = "storage.moor.dev/writer-claim"

// FinalizerEpochs keeps a WriterClaim, which knows the epochs that were, until its volume
// is gone. An addition of Moor.
const FinalizerEpochs = "storage.moor.dev/epochs"

// FinalizerDPUCluster begins the finalizers of DPU clusters, where there are several: each keeps by
// its own what it has made something of. An addition of Moor.
const FinalizerDPUCluster = "storage.moor.dev/dpu-cluster."

// LabelReplicaOf marks the replicas that the replica controller made; its
// value is the volume's name, or the hex FNV-128 of it where a label may not
// have that. It stays when a replica is promoted. An addition of Moor.
const LabelReplicaOf = "storage.moor.dev/replica-of"

// Labels and annotations that Moor adds.
const (
	// LabelOwnerUID on an object in the DPU cluster is the UID of its owner in the
	// host cluster: it tells an owner from a later one of the same name.
	LabelOwnerUID = "storage.moor.dev/owner-uid"
	// LabelMutableParameters marks the VolumeAttributesClasses that snap-controller
	// made.
	LabelMutableParameters = "storage.moor.dev/mutable-parameters"
	// LabelGroupPrefix begins the label by which a VolumeGroupSnapshot finds the
	// PersistentVolumeClaims of its group: each group has a label of its own.
	LabelGroupPrefix = "group.storage.moor.dev"
	// AnnotationRevokes on a vendor's CSIDriver in the DPU cluster, with the value
	// "true": the vendor vouches that once ControllerUnpublish has succeeded, its
	// storage accepts nothing more from that node. A CSIDriver that attaches nothing has it by its PavProvisioner's
	// revocation pod; pod-provisioner (controller) writes it then.
	AnnotationRevokes = "storage.moor.dev/revokes"
	// AnnotationKubeletWoken is changed on a pod to have its kubelet look at it: the
	// time, by snap-host-controller's clock. It means nothing else, and may be
	// removed.
	AnnotationKubeletWoken = "storage.moor.dev/kubelet-woken"
	// AnnotationModificationAsked on a vendor's PersistentVolumeClaim is when it was
	// last made to name a VolumeAttributesClass, by snap-controller's clock.
	AnnotationModificationAsked = "storage.moor.dev/modification-asked"
	// AnnotationMirrored on an event about a DPUVolume is the count under which it
	// was repeated on its claim and pods, so that it is repeated once.
	AnnotationMirrored = "storage.moor.dev/mirrored"
	// AnnotationFailovers on the Lease snap-host-controller-failovers lists the hosts
	// whose failover was admitted within the last minute, with zone and time, as JSON.
	AnnotationFailovers = "storage.moor.dev/failovers"
	// AnnotationVolumeHandle on an SVVolumeAttachment keeps the volume's handle, for
	// the day when the PersistentVolume is gone.
	AnnotationVolumeHandle = "storage.moor.dev/volume-handle"
)

// AnnotationNodeID on an SVVolumeAttachment is where Kubernetes' external-attacher
// keeps the CSI node ID on a VolumeAttachment, for the day when the node is gone.
const AnnotationNodeID = "csi.alpha.kubernetes.io/node-id"
