// Package daemon names what logs, metrics and health checks have in common, and
// serves the latter two.
package daemon

// The keys of facts in log lines.
const (
	KeyVolume     = "volume"
	KeyAttachment = "attachment"
	KeyNode       = "node"
	KeyDPU        = "dpu"
	KeyVendor     = "vendor"
	KeyEpoch      = "epoch"
	KeyRequestID  = "requestID"
)
