// Package remote makes the devices of volumes that a DPU reaches over the
// network by itself, as NVIDIA's two plugins do: NVMe connects the SNAP service
// to a subsystem of NVMe over Fabrics (nvidia-block), NFS mounts a share and
// makes an fsdev over it (nvidia-fs).
//
// Both read what to reach from the volume context, in the same keys, so that
// volumes of SPDK-CSI and NFS-CSI work as they are. The SNAP service's own list
// is the truth of what is open; a record only tells whose a device is where its
// name does not.
//
// It makes no volumes and decides nothing about who may use one.
package remote
