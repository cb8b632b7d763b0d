package csiserver

import (
	"context"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Identity is the CSI Identity service.
type Identity struct {
	csispec.UnimplementedIdentityServer
	name, version string
	caps          []csispec.PluginCapability_Service_Type
	ready         func(context.Context) error
}

// NewIdentity answers for the driver name (a DNS name of at most 63 bytes, CSI
// spec "GetPluginInfo") in version, with the plugin capabilities given. ready,
// which may be nil, returns nil once the plugin can do its work.
func NewIdentity(name, version string, ready func(context.Context) error, caps ...csispec.PluginCapability_Service_Type) *Identity {
	return &Identity{name: name, version: version, caps: caps, ready: ready}
}

// GetPluginInfo names the driver and its version.
func (i *Identity) GetPluginInfo(context.Context, *csispec.GetPluginInfoRequest) (*csispec.GetPluginInfoResponse, error) {
	return &csispec.GetPluginInfoResponse{Name: i.name, VendorVersion: i.version}, nil
}

// GetPluginCapabilities lists the capabilities the service was made with.
func (i *Identity) GetPluginCapabilities(context.Context, *csispec.GetPluginCapabilitiesRequest) (*csispec.GetPluginCapabilitiesResponse, error) {
	resp := &csispec.GetPluginCapabilitiesResponse{}
	for _, c := range i.caps {
		resp.Capabilities = append(resp.Capabilities, &csispec.PluginCapability{
			Type: &csispec.PluginCapability_Service_{Service: &csispec.PluginCapability_Service{Type: c}},
		})
	}
	return resp, nil
}

// Probe says whether the plugin is ready; why it is not goes to the log, since
// the answer has no field for a message.
func (i *Identity) Probe(ctx context.Context, _ *csispec.ProbeRequest) (*csispec.ProbeResponse, error) {
	if i.ready != nil {
		if err := i.ready(ctx); err != nil {
			logr.FromContextOrDiscard(ctx).V(1).Info("not ready", "reason", err.Error())
			return &csispec.ProbeResponse{Ready: wrapperspb.Bool(false)}, nil
		}
	}
	return &csispec.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}
