package csi

import (
	"context"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
)

// ControllerGetCapabilities lists what the platform's interfaces allow.
func (s *Server) ControllerGetCapabilities(context.Context, *csispec.ControllerGetCapabilitiesRequest) (*csispec.ControllerGetCapabilitiesResponse, error) {
	resp := &csispec.ControllerGetCapabilitiesResponse{}
	for _, t := range s.capabilities() {
		resp.Capabilities = append(resp.Capabilities, &csispec.ControllerServiceCapability{
			Type: &csispec.ControllerServiceCapability_Rpc{Rpc: &csispec.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return resp, nil
}

func (s *Server) capabilities() []csispec.ControllerServiceCapability_RPC_Type {
	p := s.o.Platform
	out := []csispec.ControllerServiceCapability_RPC_Type{
		csispec.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csispec.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	for _, row := range []struct {
		has   bool
		types []csispec.ControllerServiceCapability_RPC_Type
	}{
		{p.Attachments != nil, []csispec.ControllerServiceCapability_RPC_Type{
			csispec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME, csispec.ControllerServiceCapability_RPC_PUBLISH_READONLY,
		}},
		{p.Copies != nil, []csispec.ControllerServiceCapability_RPC_Type{csispec.ControllerServiceCapability_RPC_CLONE_VOLUME}},
		{p.Snapshots != nil, []csispec.ControllerServiceCapability_RPC_Type{
			csispec.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT, csispec.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
			csispec.ControllerServiceCapability_RPC_GET_SNAPSHOT,
		}},
		{p.Inventory != nil, []csispec.ControllerServiceCapability_RPC_Type{
			csispec.ControllerServiceCapability_RPC_LIST_VOLUMES, csispec.ControllerServiceCapability_RPC_GET_VOLUME,
		}},
		{p.Inventory != nil && p.Attachments != nil, []csispec.ControllerServiceCapability_RPC_Type{csispec.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES}},
		{p.Room != nil, []csispec.ControllerServiceCapability_RPC_Type{csispec.ControllerServiceCapability_RPC_GET_CAPACITY}},
		{p.Expansion != nil, []csispec.ControllerServiceCapability_RPC_Type{csispec.ControllerServiceCapability_RPC_EXPAND_VOLUME}},
		{p.Change != nil, []csispec.ControllerServiceCapability_RPC_Type{csispec.ControllerServiceCapability_RPC_MODIFY_VOLUME}},
		{p.Health != nil, []csispec.ControllerServiceCapability_RPC_Type{
			csispec.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH, csispec.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
		}},
	} {
		if row.has {
			out = append(out, row.types...)
		}
	}
	return out
}

// PluginCapabilities are what the Identity service has to announce with the
// options: the services, and that volumes and snapshots are not reached from
// everywhere.
func PluginCapabilities(o Options) []csispec.PluginCapability_Service_Type {
	out := []csispec.PluginCapability_Service_Type{csispec.PluginCapability_Service_CONTROLLER_SERVICE}
	if o.Groups != nil {
		out = append(out, csispec.PluginCapability_Service_GROUP_CONTROLLER_SERVICE)
	}
	if o.Blocks != nil && o.Snapshots != nil {
		out = append(out, csispec.PluginCapability_Service_SNAPSHOT_METADATA_SERVICE)
	}
	if o.constrained() {
		out = append(out, csispec.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
		if o.Snapshots != nil {
			out = append(out, csispec.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS)
		}
	}
	return out
}

// GroupControllerGetCapabilities says whether there are groups.
func (s *Server) GroupControllerGetCapabilities(context.Context, *csispec.GroupControllerGetCapabilitiesRequest) (*csispec.GroupControllerGetCapabilitiesResponse, error) {
	resp := &csispec.GroupControllerGetCapabilitiesResponse{}
	if s.o.Groups != nil {
		resp.Capabilities = []*csispec.GroupControllerServiceCapability{{
			Type: &csispec.GroupControllerServiceCapability_Rpc{Rpc: &csispec.GroupControllerServiceCapability_RPC{
				Type: csispec.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
			}},
		}}
	}
	return resp, nil
}
