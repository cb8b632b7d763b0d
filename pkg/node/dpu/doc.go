// Package dpu is the SNAP node driver: on one DPU it turns each
// VolumeAttachment into a device that the host sees, and back.
//
// A pass looks at one attachment and brings the world nearer to it: finalizer,
// claim, vendor device, exposure, status. A single-writer volume is exposed
// only under a WriterClaim that was read from the API server a moment before;
// whatever is in doubt is not exposed. What the host sees is taken away without
// asking the API server or the vendor.
//
// It writes status.dpu and status.message of its own attachments, and nothing
// else. Truth is in the API and in what SNAP and the plugins list, never in
// memory.
package dpu
