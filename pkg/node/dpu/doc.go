// Package dpu is the reconciler of the SNAP node driver: on one DPU it turns each
// VolumeAttachment into a device that the host sees, and back.
//
// A pass looks at one attachment and brings the DPU nearer to it: finalizer,
// claim, vendor device, exposure, status. A single-writer volume is exposed
// only under a WriterClaim that was read from the API server a moment before
// (pkg/writer); in doubt nothing is exposed. A device is taken away from the host
// without asking the API server or the vendor.
//
// It writes status.dpu and status.message of its own attachments, and nothing
// else. Truth is in the API and in what SNAP and the plugins list, never in
// memory. The packages below it own the attachments, the exposures, the devices,
// the patrol and the report of the DPU; they know nothing of its passes.
package dpu
