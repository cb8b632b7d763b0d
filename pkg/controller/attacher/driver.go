package attacher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	epochv1 "github.com/moor-storage/moor/api/epoch/v1"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// PublishRequest is one ControllerPublishVolume call.
type PublishRequest struct {
	VolumeHandle, NodeID string
	ReadOnly             bool
	Capability           *csispec.VolumeCapability
	VolumeContext        map[string]string
	Secrets              map[string]string
}

// Driver is what the reconciler needs of the vendor's CSI controller. An error
// wraps the sentinel of package provisioner that fits.
type Driver interface {
	// Publish lets the node use the volume and returns the publish context.
	Publish(ctx context.Context, req PublishRequest) (map[string]string, error)
	// Unpublish takes it back; what is gone already is success.
	Unpublish(ctx context.Context, volumeHandle, nodeID string, secrets map[string]string) error
	// Fence has the storage accept nothing of the volume below the epoch any more. It
	// can be repeated, and is asked only of a driver that has Features.Fence.
	Fence(ctx context.Context, volumeHandle string, epoch int64) error
}

// Features are what a driver says that it can do.
type Features struct {
	// Publish: it has ControllerPublishVolume at all.
	Publish bool
	// ReadOnly: it can publish for reading alone.
	ReadOnly bool
	// SingleNodeMultiWriter: it knows the newer single-node access modes.
	SingleNodeMultiWriter bool
	// Fence: it fences volumes by epochs, by FencingService beside CSI's services. One
	// that does not publish is not asked: there is nothing of an attachment that says
	// which volume of the vendor's it is.
	Fence bool
}

// Connection is a Driver over gRPC.
type Connection struct {
	conn       *grpc.ClientConn
	identity   csispec.IdentityClient
	controller csispec.ControllerClient
	fencing    epochv1.FencingServiceClient
}

// Connect returns a Driver that calls the endpoint (unix:///path, a bare path
// or tcp://host:port). Nothing is dialed until the first call: the attacher starts
// before its driver does, and goes on when that restarts.
//
// It is not csi-lib-utils' connection.Connect, which blocks until the driver
// answers, gives up after 30 seconds, uses calls that gRPC has deprecated
// (DialContext, WithBlock), and logs by klog, where this process logs by logr.
func Connect(endpoint string) (*Connection, error) {
	network, address, err := csiserver.ParseEndpoint(endpoint)
	if err != nil {
		return nil, fmt.Errorf("address of the CSI driver: %w", err)
	}
	target := "passthrough:///" + address
	if network == "unix" {
		target = "unix://" + address
	}
	conn, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{
			// A driver that restarts is back within seconds.
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 20 * time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("connect to the CSI driver at %s: %w", endpoint, err)
	}
	return &Connection{
		conn: conn, identity: csispec.NewIdentityClient(conn), controller: csispec.NewControllerClient(conn), fencing: epochv1.NewFencingServiceClient(conn),
	}, nil
}

// Close ends the connection; calls under way fail.
func (c *Connection) Close() error { return c.conn.Close() }

// Name waits until the driver answers and returns its name.
func (c *Connection) Name(ctx context.Context) (string, error) {
	r, err := c.identity.GetPluginInfo(ctx, &csispec.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return "", fmt.Errorf("ask the CSI driver at %s for its name: %w", c.conn.Target(), csiserver.FromStatus(err))
	}
	if r.GetName() == "" {
		return "", fmt.Errorf("the CSI driver at %s has an empty name", c.conn.Target())
	}
	return r.GetName(), nil
}

// Features asks the driver what it can do.
func (c *Connection) Features(ctx context.Context) (Features, error) {
	plugin, err := c.identity.GetPluginCapabilities(ctx, &csispec.GetPluginCapabilitiesRequest{})
	if err != nil {
		return Features{}, fmt.Errorf("ask the CSI driver for its plugin capabilities: %w", csiserver.FromStatus(err))
	}
	isController := func(p *csispec.PluginCapability) bool {
		return p.GetService().GetType() == csispec.PluginCapability_Service_CONTROLLER_SERVICE
	}
	if !slices.ContainsFunc(plugin.GetCapabilities(), isController) {
		return Features{}, nil
	}
	r, err := c.controller.ControllerGetCapabilities(ctx, &csispec.ControllerGetCapabilitiesRequest{})
	if err != nil {
		return Features{}, fmt.Errorf("ask the CSI driver for its controller capabilities: %w", csiserver.FromStatus(err))
	}
	has := func(want csispec.ControllerServiceCapability_RPC_Type) bool {
		return slices.ContainsFunc(r.GetCapabilities(), func(c *csispec.ControllerServiceCapability) bool {
			return c.GetRpc().GetType() == want
		})
	}
	fence, err := c.fences(ctx)
	if err != nil {
		return Features{}, err
	}
	publish := has(csispec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	return Features{
		Publish:               publish,
		Fence:                 publish && fence,
		ReadOnly:              has(csispec.ControllerServiceCapability_RPC_PUBLISH_READONLY),
		SingleNodeMultiWriter: has(csispec.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER),
	}, nil
}

// fences asks the driver whether it fences by epochs. Most have no such service.
func (c *Connection) fences(ctx context.Context) (bool, error) {
	_, err := c.fencing.GetFencingInfo(ctx, &epochv1.GetFencingInfoRequest{})
	if err = csiserver.FromStatus(err); errors.Is(err, provisioner.ErrUnsupported) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask the CSI driver whether it fences by epochs: %w", err)
	}
	return true, nil
}

// Publish implements Driver.
func (c *Connection) Publish(ctx context.Context, req PublishRequest) (map[string]string, error) {
	r, err := c.controller.ControllerPublishVolume(ctx, &csispec.ControllerPublishVolumeRequest{
		VolumeId: req.VolumeHandle, NodeId: req.NodeID, Readonly: req.ReadOnly,
		VolumeCapability: req.Capability, VolumeContext: req.VolumeContext, Secrets: req.Secrets,
	})
	if err != nil {
		return nil, fmt.Errorf("publish volume %s to node %s: %w", req.VolumeHandle, req.NodeID, csiserver.FromStatus(err))
	}
	return r.GetPublishContext(), nil
}

// Fence implements Driver.
func (c *Connection) Fence(ctx context.Context, volumeHandle string, epoch int64) error {
	_, err := c.fencing.Fence(ctx, &epochv1.FenceRequest{VolumeId: volumeHandle, Epoch: epoch})
	if err != nil {
		return fmt.Errorf("fence volume %s below epoch %d: %w", volumeHandle, epoch, csiserver.FromStatus(err))
	}
	return nil
}

// Unpublish implements Driver.
func (c *Connection) Unpublish(ctx context.Context, volumeHandle, nodeID string, secrets map[string]string) error {
	_, err := c.controller.ControllerUnpublishVolume(ctx, &csispec.ControllerUnpublishVolumeRequest{
		VolumeId: volumeHandle, NodeId: nodeID, Secrets: secrets,
	})
	if err != nil {
		return fmt.Errorf("unpublish volume %s from node %s: %w", volumeHandle, nodeID, csiserver.FromStatus(err))
	}
	return nil
}

// refusals are the errors by which a driver says that it did nothing.
var refusals = []error{
	provisioner.ErrInvalid, provisioner.ErrNotFound, provisioner.ErrExists, provisioner.ErrInUse,
	provisioner.ErrPrecondition, provisioner.ErrOutOfRange, provisioner.ErrUnsupported,
}

// refused reports whether a publish that ended with err left nothing behind.
// Timeouts, lost connections, operations pending, exhausted resources and what
// external-attacher calls final without knowing (Internal, Unknown) may have.
func refused(err error) bool {
	return !provisioner.Uncertain(err) && slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) })
}
