// Package attachments owns what the DPU cluster says about the volumes of one
// DPU: its VolumeAttachments, their Volumes and WriterClaims, and the queue of
// attachments that have to be looked at again.
//
// It reads, and never writes. Each function says whether it reads the cache or
// the API server itself.
package attachments
