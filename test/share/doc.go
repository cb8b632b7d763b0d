// Package share is a storage for PavProvisioners that lets clients in by the names of their attachments, and
// shuts a name out for good: what storage.example of deploy/examples/pods/share.yaml stands for. Storage is its
// two ends that listen, for volumes and for administration; Show is what a staging pod runs on a DPU.
//
// Volumes are files in one directory. What is written to them is recorded by the storage, outside of hosts and
// DPUs, as the storage target of the bed does.
package share
