// Package dmcrypt stands in for the kernel's dm-crypt, which the kernel of a test
// machine may lack: it shows what is encrypted on a block device as another block
// device, in user space. The cipher is aes-xts-plain64, which LUKS2 uses by default.
// The header of LUKS is not its business; cryptsetup(8) reads and writes that without
// the kernel.
//
// Programs ask for devices over HTTP, since a mapping, as one of the kernel, outlives
// the pod that asked for it. Requests are not authenticated: this is for test beds.
//
// It needs root, FUSE and loop devices.
package dmcrypt
