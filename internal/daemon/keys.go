// Package daemon is what every daemon has: its main function, the keys of its
// log, and the server of its metrics and health checks.
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
