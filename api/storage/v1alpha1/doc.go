// Package v1alpha1 holds the nine kinds of NVIDIA DPF's storage subsystem,
// group storage.dpu.nvidia.com, wire-compatible with DPF: same names, schemas,
// validation rules, printer columns, finalizers and conditions. What Moor adds
// are optional fields, each marked as such.
//
// The host cluster serves DPUStoragePolicy, DPUStorageVendor, DPUVolume and
// DPUVolumeAttachment; the DPU cluster serves StoragePolicy, StorageVendor,
// Volume, VolumeAttachment and SVVolumeAttachment.
//
// +kubebuilder:object:generate=true
// +groupName=storage.dpu.nvidia.com
package v1alpha1
