// Package zerotrust is what a host does with the devices that its DPU shows when
// the host is not trusted: it finds them in sysfs, mounts them where a
// table says, and unmounts those that are taken away.
//
// It never talks to a cluster, and has no credentials: a device is named by PCI
// address and namespace, by UUID or by tag, as an operator reads them in the status
// of a DPUVolumeAttachment. Formatting and mounting is done by the code of the CSI
// node service.
package zerotrust
