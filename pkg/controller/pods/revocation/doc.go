// Package revocation has the storage behind the volumes of PavProvisioners say that a DPU can no longer write: it is
// the attacher of these volumes. Requests answers SVVolumeAttachments, and writes the storage's word into the
// VolumeAttachment; Reconciler brings PodRevocations through their phases, whose pods tell the storage. What the
// success of such a pod counts for is decided by next alone, by what the API server itself says then.
package revocation
