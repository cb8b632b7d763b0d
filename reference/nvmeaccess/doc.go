// Package nvmeaccess is the epoch at the medium for a vendor whose storage is an NVMe-oF
// target with SPDK's JSON-RPC: who may connect to a volume's subsystem is the fence.
//
// A DPU connects under a host NQN that ends in the epoch, and the target admits it by that
// name alone. Access, in the process of the vendor's CSI controller, lets names in (Admit)
// and ends those below an epoch (Fence, which is provisioner.Fencing). Devices, in the
// vendor's plugin on a DPU, connects devices under them (provisioner.Epochs).
//
// It believes no answer about what it asked for, only what the target lists afterwards.
// Decision 0042 says what it needs of a target, and what it does not cover.
package nvmeaccess
