// Package epochv1 holds the generated gRPC API by which the epoch of a
// single-writer volume reaches its storage (proto package moor.storage.epoch.v1):
// FencingService beside the vendor's CSI controller, EpochService beside its plugin
// on a DPU. Both are Moor's own and optional; the comments of the proto are the
// contract. Run hack/protoc.sh after a change of it.
package epochv1
