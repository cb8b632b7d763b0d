// Package v1alpha1 holds Moor's own kinds, group storage.moor.dev:
// DPUStorageNode (heartbeats of a host and its DPU), WriterClaim (who may
// write to a single-writer volume), DPUVolumeSnapshot with its mirror
// StorageSnapshot (what a volume held at one instant), and PodVolume and
// PodStaging (pods as volumes: a volume that pods make, and one on a node).
//
// +kubebuilder:object:generate=true
// +groupName=storage.moor.dev
package v1alpha1
