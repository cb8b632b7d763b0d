package v1alpha1

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
	// storage accepts nothing more from that node.
	AnnotationRevokes = "storage.moor.dev/revokes"
	// AnnotationKubeletWoken is changed on a pod to have its kubelet look at it: the
	// time, by snap-host-controller's clock. It means nothing else, and may be
	// removed.
	AnnotationKubeletWoken = "storage.moor.dev/kubelet-woken"
	// AnnotationVolumeHandle on an SVVolumeAttachment keeps the volume's handle, for
	// the day when the PersistentVolume is gone.
	AnnotationVolumeHandle = "storage.moor.dev/volume-handle"
)

// AnnotationNodeID on an SVVolumeAttachment is where Kubernetes' external-attacher
// keeps the CSI node ID on a VolumeAttachment, for the day when the node is gone.
const AnnotationNodeID = "csi.alpha.kubernetes.io/node-id"
