// Package snap is the DPU face over a SNAP service: it shows an SPDK block
// device to the host as an NVMe namespace on an emulated function, or an fsdev
// as a virtio-fs device, and takes it away again.
//
// Every volume has a subsystem of its own, named for its device. What there is
// is read from the service before each step, so an exposure that was left
// half-made by a crash is found and completed, or removed; nothing is kept in
// memory but locks, and which function a virtio-fs device was given, without
// which such a device is made anew.
//
// It never touches a subsystem that is not its own, but for a namespace there
// that holds the very device it is asked to withdraw.
package snap
