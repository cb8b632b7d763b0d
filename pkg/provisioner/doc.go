// Package provisioner says what a storage platform can do, without saying how.
//
// A platform offers one or more interfaces: Volumes (make and remove), Attachments
// (let a node use a volume), Host (turn an attached volume into a device on
// the machine that asks) and DPU (show a device to the host as an emulated PCI
// function); and, beside these, Copies, Snapshots, Groups, Inventory, Room,
// Expansion, Change, Health and Rescan. A nil interface means "this platform
// cannot do that", and it is not announced.
//
// The contract that every implementation keeps, and that provisionertest checks:
// every verb is idempotent; removing what is gone is success; an error is final
// unless it wraps ErrBusy, ErrUnavailable or a context error, in which case the
// effect is uncertain and the same call may be repeated.
package provisioner
