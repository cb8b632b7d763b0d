// Package v1alpha1 holds Moor's own kinds, group storage.moor.dev:
// DPUStorageNode (heartbeats of a host and its DPU), WriterClaim (who may
// write to a single-writer volume), and DPUVolumeSnapshot with its mirror
// StorageSnapshot (what a volume held at one instant).
//
// +kubebuilder:object:generate=true
// +groupName=storage.moor.dev
package v1alpha1
