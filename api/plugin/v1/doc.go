// Package pluginv1 holds the generated gRPC API between the SNAP node driver
// and a storage vendor's plugin on a DPU (proto package
// nvidia.storage.plugins.v1). It is wire compatible with DPF: field numbers
// and names never change. Run hack/protoc.sh after a change of the proto.
package pluginv1
