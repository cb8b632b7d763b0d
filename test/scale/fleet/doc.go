// Package fleet plays hosts and DPUs by the thousand, each by a few goroutines: the
// heartbeats are those of the real programs (pkg/node/heartbeat), the kubelets' Leases
// are renewed, and DPUs answer their VolumeAttachments by the rules of pkg/writer. It
// plays what is no part of Moor, too: the vendor's CSI controller and the binder of
// its claims.
package fleet
