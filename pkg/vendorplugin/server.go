package vendorplugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	epochv1 "github.com/moor-storage/moor/api/epoch/v1"
	pluginv1 "github.com/moor-storage/moor/api/plugin/v1"
	"github.com/moor-storage/moor/internal/filestore"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// drain is how long calls under way may take to end when the server stops.
const drain = 10 * time.Second

// Options describe a plugin.
type Options struct {
	// Info is who the plugin is.
	Info
	// Provider names the SNAP process that Host uses; empty means "nvidia".
	Provider string
	// Capabilities are what the plugin says that it can do. GetDevice and
	// ListDevices are UNIMPLEMENTED without theirs.
	Capabilities Capabilities
	// Host makes the devices.
	Host provisioner.Host
	// Epochs, if set, opens them under epochs: then EpochService is served, too.
	Epochs provisioner.Epochs
	// Ready, if set, says whether the plugin can work: false while it starts,
	// an error if it is ill.
	Ready func(context.Context) (bool, error)
	// Records is a directory, made when needed, where the requests are kept that devices
	// were made by, so that GetDevice answers all its fields, after a restart too. They
	// may hold credentials: the files are the owner's alone. Empty: it answers the volume
	// mode alone.
	Records string
	// Timeout is the deadline of a call; 0 means DefaultTimeout.
	Timeout time.Duration
	// Logger receives one line per failed call.
	Logger logr.Logger
}

// Server is a StoragePlugin over a platform's Host interface.
type Server struct {
	pluginv1.UnimplementedIdentityServiceServer
	pluginv1.UnimplementedStoragePluginServiceServer
	epochv1.UnimplementedEpochServiceServer
	o Options
}

// NewServer returns the plugin described by o.
func NewServer(o Options) *Server {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	return &Server{o: o}
}

// Serve serves on the unix socket until ctx is done, lets the calls under way
// end, and returns nil. The socket's directory is made with mode 0755; a socket
// left behind is replaced, one that is served by another process is ErrInUse. ErrInvalid
// if the plugin's Info is not what the plugin API allows.
func (s *Server) Serve(ctx context.Context, socket string) error {
	if faults := s.o.faults(); len(faults) > 0 {
		return fmt.Errorf("serve a vendor plugin on %s: %s: %w", socket, strings.Join(faults, "; "), provisioner.ErrInvalid)
	}
	l, err := listen(socket)
	if err != nil {
		return fmt.Errorf("serve vendor plugin %s: %w", s.o.Name, err)
	}
	return s.serveOn(ctx, l)
}

func (s *Server) serveOn(ctx context.Context, l net.Listener) error {
	g := grpc.NewServer(grpc.UnaryInterceptor(s.intercept))
	pluginv1.RegisterIdentityServiceServer(g, s)
	pluginv1.RegisterStoragePluginServiceServer(g, s)
	if s.o.Epochs != nil {
		epochv1.RegisterEpochServiceServer(g, s)
	}
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	s.o.Logger.Info("serving", "socket", l.Addr().String())
	select {
	case err := <-done:
		return fmt.Errorf("serve vendor plugin %s on %s: %w", s.o.Name, l.Addr(), err)
	case <-ctx.Done():
		force := time.AfterFunc(drain, g.Stop)
		defer force.Stop()
		g.GracefulStop()
		<-done // that it was stopped
		return nil
	}
}

// intercept gives each call its deadline and each error its code.
func (s *Server) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (resp any, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
		if err != nil {
			s.o.Logger.Error(err, "call failed", "method", info.FullMethod)
			resp, err = nil, toStatus(err)
		}
	}()
	return h(ctx, req)
}

// GetPluginInfo implements IdentityService.
func (s *Server) GetPluginInfo(context.Context, *pluginv1.GetPluginInfoRequest) (*pluginv1.GetPluginInfoResponse, error) {
	return &pluginv1.GetPluginInfoResponse{Name: s.o.Name, VendorVersion: s.o.Version, Manifest: s.o.Manifest}, nil
}

// Probe implements IdentityService.
func (s *Server) Probe(ctx context.Context, _ *pluginv1.ProbeRequest) (*pluginv1.ProbeResponse, error) {
	ready := true
	if s.o.Ready != nil {
		var err error
		if ready, err = s.o.Ready(ctx); err != nil {
			return nil, err
		}
	}
	return &pluginv1.ProbeResponse{Ready: wrapperspb.Bool(ready)}, nil
}

// StoragePluginGetCapabilities implements StoragePluginService.
func (s *Server) StoragePluginGetCapabilities(context.Context, *pluginv1.StoragePluginGetCapabilitiesRequest) (*pluginv1.StoragePluginGetCapabilitiesResponse, error) {
	resp := &pluginv1.StoragePluginGetCapabilitiesResponse{}
	for _, c := range []struct {
		have bool
		kind pluginv1.StoragePluginServiceCapability_RPC_Type
	}{
		{s.o.Capabilities.Block, pluginv1.StoragePluginServiceCapability_RPC_TYPE_CREATE_DELETE_BLOCK_DEVICE},
		{s.o.Capabilities.Filesystem, pluginv1.StoragePluginServiceCapability_RPC_TYPE_CREATE_DELETE_FS_DEVICE},
		{s.o.Capabilities.Get, pluginv1.StoragePluginServiceCapability_RPC_TYPE_GET_DEVICE_STATS},
		{s.o.Capabilities.List, pluginv1.StoragePluginServiceCapability_RPC_TYPE_LIST_DEVICES},
	} {
		if c.have {
			rpc := &pluginv1.StoragePluginServiceCapability_RPC{Type: c.kind}
			resp.Capabilities = append(resp.Capabilities, &pluginv1.StoragePluginServiceCapability{
				Type: &pluginv1.StoragePluginServiceCapability_Rpc{Rpc: rpc},
			})
		}
	}
	return resp, nil
}

// GetSNAPProvider implements StoragePluginService.
func (s *Server) GetSNAPProvider(context.Context, *pluginv1.GetSNAPProviderRequest) (*pluginv1.GetSNAPProviderResponse, error) {
	return &pluginv1.GetSNAPProviderResponse{ProviderName: s.o.Provider}, nil
}

// CreateDevice implements StoragePluginService by Host.Open.
func (s *Server) CreateDevice(ctx context.Context, req *pluginv1.CreateDeviceRequest) (*pluginv1.CreateDeviceResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, fmt.Errorf("volume_id is empty: %w", provisioner.ErrInvalid)
	}
	mode, err := modeOf(req.GetVolumeMode())
	if err != nil {
		return nil, err
	}
	if !s.o.Capabilities.Supports(mode) {
		return nil, fmt.Errorf("volume %s: this plugin makes no devices of volume mode %s: %w", req.GetVolumeId(), mode, provisioner.ErrUnsupported)
	}
	modes, err := fromWire(req.GetAccessModes())
	if err != nil {
		return nil, err
	}
	d, err := s.o.Host.Open(ctx, provisioner.OpenSpec{
		VolumeID: req.GetVolumeId(), Mode: mode, AccessModes: modes,
		PublishContext: req.GetPublishContext(), VolumeContext: req.GetVolumeContext(), Parameters: req.GetStorageParameters(),
	})
	if errors.Is(err, provisioner.ErrNotFound) {
		// NOT_FOUND is GetDevice's word; CreateDevice has only one refusal.
		err = fmt.Errorf("%v: %w", err, provisioner.ErrPrecondition)
	}
	if err != nil {
		return nil, err
	}
	if err := s.record(req); err != nil {
		return nil, err
	}
	return &pluginv1.CreateDeviceResponse{DeviceName: d.Name}, nil
}

// DeleteDevice implements StoragePluginService by Host.Close.
func (s *Server) DeleteDevice(ctx context.Context, req *pluginv1.DeleteDeviceRequest) (*pluginv1.DeleteDeviceResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, fmt.Errorf("volume_id is empty: %w", provisioner.ErrInvalid)
	}
	err := s.o.Host.Close(ctx, req.GetVolumeId(), req.GetDeviceName())
	if err != nil && !errors.Is(err, provisioner.ErrNotFound) {
		return nil, err
	}
	if err := s.forget(req.GetVolumeId()); err != nil {
		return nil, err
	}
	return &pluginv1.DeleteDeviceResponse{}, nil
}

// GetDevice implements StoragePluginService by Host.Lookup. An empty device
// name means whichever the volume has.
func (s *Server) GetDevice(ctx context.Context, req *pluginv1.GetDeviceRequest) (*pluginv1.GetDeviceResponse, error) {
	if !s.o.Capabilities.Get {
		return nil, fmt.Errorf("GetDevice: %w", provisioner.ErrUnsupported)
	}
	d, err := s.o.Host.Lookup(ctx, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if req.GetDeviceName() != "" && req.GetDeviceName() != d.Name {
		return nil, fmt.Errorf("volume %s has device %s, not %s: %w", d.VolumeID, d.Name, req.GetDeviceName(), provisioner.ErrNotFound)
	}
	made, err := s.recall(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &pluginv1.GetDeviceResponse{
		VolumeMode: string(d.Mode), AccessModes: made.GetAccessModes(),
		PublishContext: made.GetPublishContext(), VolumeContext: made.GetVolumeContext(), StorageParameters: made.GetStorageParameters(),
	}, nil
}

// ListDevices implements StoragePluginService by Host.List. A page starts
// behind the last entry of the one before, so devices that come and go between
// two pages move no other device out of sight.
func (s *Server) ListDevices(ctx context.Context, req *pluginv1.ListDevicesRequest) (*pluginv1.ListDevicesResponse, error) {
	if !s.o.Capabilities.List {
		return nil, fmt.Errorf("ListDevices: %w", provisioner.ErrUnsupported)
	}
	if req.GetMaxEntries() < 0 {
		return nil, fmt.Errorf("max_entries is %d: %w", req.GetMaxEntries(), provisioner.ErrInvalid)
	}
	after, err := parseToken(req.GetStartingToken())
	if err != nil {
		return nil, err
	}
	all, err := s.o.Host.List(ctx)
	if err != nil {
		return nil, err
	}
	return page(all, after, int(req.GetMaxEntries())), nil
}

// GetEpochInfo implements EpochService.
func (s *Server) GetEpochInfo(context.Context, *epochv1.GetEpochInfoRequest) (*epochv1.GetEpochInfoResponse, error) {
	return &epochv1.GetEpochInfoResponse{}, nil
}

// OpenAtEpoch implements EpochService by Epochs.OpenAtEpoch.
func (s *Server) OpenAtEpoch(ctx context.Context, req *epochv1.OpenAtEpochRequest) (*epochv1.OpenAtEpochResponse, error) {
	if req.GetVolumeId() == "" || req.GetDeviceName() == "" || req.GetEpoch() < 1 {
		return nil, fmt.Errorf("volume_id or device_name is empty, or epoch %d is not positive: %w", req.GetEpoch(), provisioner.ErrInvalid)
	}
	if err := s.o.Epochs.OpenAtEpoch(ctx, req.GetVolumeId(), req.GetDeviceName(), req.GetEpoch()); err != nil {
		return nil, err
	}
	return &epochv1.OpenAtEpochResponse{}, nil
}

// requests are what devices were made by, in the wire format, by volume.
func (s *Server) requests() filestore.Store[[]byte] {
	return filestore.Store[[]byte]{Dir: s.o.Records}
}

// record keeps what the device of a volume was made by. Where that fails the device is
// there, and to make it again is harmless: so it is uncertain.
func (s *Server) record(req *pluginv1.CreateDeviceRequest) error {
	if s.o.Records == "" {
		return nil
	}
	raw, err := proto.Marshal(req)
	if err == nil {
		err = s.requests().Put(req.GetVolumeId(), raw)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	return nil
}

// recall is what the device of a volume was made by; nil if that is not known, as of one
// that an earlier version made.
func (s *Server) recall(volume string) (*pluginv1.CreateDeviceRequest, error) {
	if s.o.Records == "" {
		return nil, nil //nolint:nilnil // a nil message answers its fields
	}
	raw, found, err := s.requests().Get(volume)
	if err != nil {
		return nil, err
	}
	req := &pluginv1.CreateDeviceRequest{}
	if !found || proto.Unmarshal(raw, req) != nil || req.GetVolumeId() != volume {
		return nil, nil //nolint:nilnil // as above
	}
	return req, nil
}

func (s *Server) forget(volume string) error {
	if s.o.Records == "" {
		return nil
	}
	if err := s.requests().Delete(volume); err != nil {
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	return nil
}
