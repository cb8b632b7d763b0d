// Package snapemulator is an emulated SNAP service: the JSON-RPC of SNAP and SPDK on
// a unix socket, the rules that SNAP keeps (package model), a data path, and
// the sysfs and device tree in which a host finds what it is shown.
//
// What makes it more than a fake: detaching a namespace ends the host's I/O
// before the answer is sent, and every accepted write is recorded at the
// medium, in one sequence over all emulators that share it. So a test can prove
// from outside that an old host no longer writes.
//
// It never decides who may use a volume.
package snapemulator
