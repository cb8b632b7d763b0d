// Package endpoint is the CSI node service of one PavProvisioner: it has a volume staged by a pod on this
// node, and shown to the pod that uses it, and undoes both.
//
// It keeps nothing in memory. What is to be staged is a PodStaging, one for each volume and pod, whose name
// follows from both; what is shown is in the mount table. So each call can be repeated after a restart at
// any instant. It runs no pod and mounts nothing by itself.
package endpoint

import (
	"context"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/pkg/node/pods/ask"
	"github.com/moor-storage/moor/pkg/node/pods/show"
)

// Targets shows volumes; *show.Targets is the real one.
type Targets interface {
	Show(w show.Want) error
	Hide(target string) error
	Usage(target string) ([]*csispec.VolumeUsage, error)
}

// Options is what the service works on.
type Options struct {
	// Driver is the name of the PavProvisioner, and Node that of this node.
	Driver, Node string
	// Boot is what this boot of the node is called: of another one nothing is mounted any more.
	Boot string
	// Client reads PodStagings of this node from a cache; Live reads from the API server itself.
	Client client.Client
	Live   client.Reader
	// Stagings waits for what the cache of Client shows.
	Stagings ask.Awaiter
	// Targets shows volumes.
	Targets Targets
	// Serves returns why no more volumes of this provisioner are staged here; nil if they are.
	Serves func(ctx context.Context) error
	// Wait is how long a call waits for a pod; 0: as ask.Bounded has it.
	Wait time.Duration
}

// Server is the CSI node service of a provisioner.
type Server struct {
	csispec.UnimplementedNodeServer
	o        Options
	stagings ask.Stagings
}

// New makes the service.
func New(o Options) *Server {
	return &Server{o: o, stagings: ask.Stagings{Boot: o.Boot, Client: o.Client, Live: o.Live, Awaiter: o.Stagings}}
}

// NodeGetInfo names the node. It takes as many volumes as its pods have.
func (s *Server) NodeGetInfo(context.Context, *csispec.NodeGetInfoRequest) (*csispec.NodeGetInfoResponse, error) {
	return &csispec.NodeGetInfoResponse{NodeId: s.o.Node}, nil
}

// NodeGetCapabilities lists what this node can do. A volume is staged for each pod, so there is nothing
// that is staged for a node.
func (s *Server) NodeGetCapabilities(context.Context, *csispec.NodeGetCapabilitiesRequest) (*csispec.NodeGetCapabilitiesResponse, error) {
	out := &csispec.NodeGetCapabilitiesResponse{}
	for _, t := range []csispec.NodeServiceCapability_RPC_Type{
		csispec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csispec.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csispec.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
	} {
		out.Capabilities = append(out.Capabilities, &csispec.NodeServiceCapability{
			Type: &csispec.NodeServiceCapability_Rpc{Rpc: &csispec.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return out, nil
}

// Key is what calls are serialized by: where the volume is seen. Several pods of a node can use one
// volume, and one of them must not wait for the staging of another.
func Key(req any) string {
	if r, ok := req.(interface{ GetTargetPath() string }); ok {
		return r.GetTargetPath()
	}
	if r, ok := req.(interface{ GetVolumePath() string }); ok {
		return r.GetVolumePath()
	}
	return ""
}
