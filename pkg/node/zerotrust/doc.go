// Package zerotrust is what a host does with the devices that its DPU shows when
// the host is trusted with nothing: it finds them in sysfs, mounts them where a
// table says, and unmounts those that are taken away.
//
// It knows no cluster, no account and no volume: a device is named by PCI
// address and namespace, or by UUID, as an operator reads them in the status of
// a DPUVolumeAttachment. How a device is formatted and mounted is the business
// of the CSI node service, whose code does it.
package zerotrust
