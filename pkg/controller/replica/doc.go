// Package replica keeps the replicas of a volume: attachments on other hosts
// than the primary's that go as far as they may without the right to write, so
// that a pod finds its volume nearly there when its host dies. It makes and
// removes DPUVolumeAttachments of role Replica that carry its label, and writes
// DPUVolume.status.replicas; it never promotes, and never touches other
// attachments. pkg/placement chooses the nodes.
package replica
