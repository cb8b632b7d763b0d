// Package localvendor is the reference vendor: a storage platform made of sparse
// files in one directory, which the controller and every DPU reach by the same
// name (a local disk on one machine, a shared file system on several).
//
// Storage owns the directory: <id>.img, or <id>.dir for a volume of mode
// Filesystem, holds a volume's data, <id>.json what it is and which nodes have
// it. Host, used on each DPU, turns an image into an SPDK AIO bdev of the SNAP
// service there, and a directory into an fsdev. Neither keeps truth in memory:
// both may be restarted between any two steps.
//
// It never formats, mounts or copies data.
package localvendor
