// Package hostdev owns what the host knows about its devices: which block
// device is the namespace behind a PCI function (nvme.go), which function the
// DPU means (vuid.go), binding drivers and making virtual functions (pci.go), what lies on a device (probe.go), and
// making a file system on one that is blank (format.go).
//
// Everything lies under Roots, so that tests and the emulated DPU use trees of
// their own. It holds no state and decides nothing about volumes; its errors
// are the sentinels in errors.go.
//
// The rule that may never break: a device that holds anything which this
// package did not itself write is never formatted.
package hostdev
