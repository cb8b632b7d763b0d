// Package attacher carries SVVolumeAttachments of the DPU cluster to the
// vendor's CSI controller: ControllerPublishVolume when one is made,
// ControllerUnpublishVolume when one is deleted. It is to DPUs what Kubernetes'
// external-attacher is to hosts.
//
// Its finalizer on an SVVolumeAttachment means "the vendor may have to undo
// something". It stands there before the first call, together with what a later
// undo needs to know, and goes after the last. It writes nothing else but the
// object's status, and never touches the data.
package attacher
