package attacher

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	epochv1 "github.com/moor-storage/moor/api/epoch/v1"
)

// fakeDriver is a vendor's CSI driver on a unix socket.
type fakeDriver struct {
	csispec.UnimplementedIdentityServer
	csispec.UnimplementedControllerServer
	epochv1.UnimplementedFencingServiceServer

	mu        sync.Mutex
	publish   []error // the next answers; nil or none: success
	unpublish []error
	published []*csispec.ControllerPublishVolumeRequest
	undone    []*csispec.ControllerUnpublishVolumeRequest
	caps      []csispec.ControllerServiceCapability_RPC_Type
	hang      bool
	fences    bool    // serves FencingService
	fence     []error // the next answers to Fence
	fenced    []*epochv1.FenceRequest
	onPublish func()
}

// answers ends the hanging, once a call that the caller gave up has returned:
// at its deadline a caller has an answer before the server has.
func (d *fakeDriver) answers(onPublish func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hang, d.onPublish = false, onPublish
}

func next(errs *[]error) error {
	if len(*errs) == 0 {
		return nil
	}
	err := (*errs)[0]
	*errs = (*errs)[1:]
	return err
}

func (d *fakeDriver) GetPluginInfo(context.Context, *csispec.GetPluginInfoRequest) (*csispec.GetPluginInfoResponse, error) {
	return &csispec.GetPluginInfoResponse{Name: driverName}, nil
}

func (d *fakeDriver) GetPluginCapabilities(context.Context, *csispec.GetPluginCapabilitiesRequest) (*csispec.GetPluginCapabilitiesResponse, error) {
	if len(d.caps) == 0 {
		return &csispec.GetPluginCapabilitiesResponse{}, nil
	}
	return &csispec.GetPluginCapabilitiesResponse{Capabilities: []*csispec.PluginCapability{{
		Type: &csispec.PluginCapability_Service_{Service: &csispec.PluginCapability_Service{Type: csispec.PluginCapability_Service_CONTROLLER_SERVICE}},
	}}}, nil
}

func (d *fakeDriver) ControllerGetCapabilities(context.Context, *csispec.ControllerGetCapabilitiesRequest) (*csispec.ControllerGetCapabilitiesResponse, error) {
	resp := &csispec.ControllerGetCapabilitiesResponse{}
	for _, c := range d.caps {
		resp.Capabilities = append(resp.Capabilities, &csispec.ControllerServiceCapability{
			Type: &csispec.ControllerServiceCapability_Rpc{Rpc: &csispec.ControllerServiceCapability_RPC{Type: c}},
		})
	}
	return resp, nil
}

func (d *fakeDriver) ControllerPublishVolume(ctx context.Context, req *csispec.ControllerPublishVolumeRequest) (*csispec.ControllerPublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.published = append(d.published, req)
	if d.onPublish != nil {
		d.onPublish()
	}
	if d.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := next(&d.publish); err != nil {
		return nil, err
	}
	return &csispec.ControllerPublishVolumeResponse{PublishContext: map[string]string{"path": "/x/" + req.GetVolumeId()}}, nil
}

func (d *fakeDriver) ControllerUnpublishVolume(_ context.Context, req *csispec.ControllerUnpublishVolumeRequest) (*csispec.ControllerUnpublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.undone = append(d.undone, req)
	if err := next(&d.unpublish); err != nil {
		return nil, err
	}
	return &csispec.ControllerUnpublishVolumeResponse{}, nil
}

func (d *fakeDriver) GetFencingInfo(ctx context.Context, req *epochv1.GetFencingInfoRequest) (*epochv1.GetFencingInfoResponse, error) {
	if !d.fences {
		return d.UnimplementedFencingServiceServer.GetFencingInfo(ctx, req)
	}
	return &epochv1.GetFencingInfoResponse{}, nil
}

func (d *fakeDriver) Fence(_ context.Context, req *epochv1.FenceRequest) (*epochv1.FenceResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fenced = append(d.fenced, req)
	if err := next(&d.fence); err != nil {
		return nil, err
	}
	return &epochv1.FenceResponse{}, nil
}

// serve puts the driver on a socket and returns a connection to it.
func (d *fakeDriver) serve(t *testing.T) (c *Connection, stop func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "csi.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	csispec.RegisterIdentityServer(g, d)
	csispec.RegisterControllerServer(g, d)
	epochv1.RegisterFencingServiceServer(g, d)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	stop = func() { g.Stop(); <-done }
	c, err = Connect("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		stop()
		_ = os.RemoveAll(dir)
	})
	return c, stop
}
