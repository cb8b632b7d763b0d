package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// ControllerGetCapabilities lists what the platform's interfaces allow.
func (s *Server) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range s.capabilities() {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return resp, nil
}

func (s *Server) capabilities() []csi.ControllerServiceCapability_RPC_Type {
	p := s.o.Platform
	out := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	for _, row := range []struct {
		has   bool
		types []csi.ControllerServiceCapability_RPC_Type
	}{
		{p.Attachments != nil, []csi.ControllerServiceCapability_RPC_Type{
			csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME, csi.ControllerServiceCapability_RPC_PUBLISH_READONLY,
		}},
		{p.Copies != nil, []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_CLONE_VOLUME}},
		{p.Snapshots != nil, []csi.ControllerServiceCapability_RPC_Type{
			csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT, csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
			csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
		}},
		{p.Inventory != nil, []csi.ControllerServiceCapability_RPC_Type{
			csi.ControllerServiceCapability_RPC_LIST_VOLUMES, csi.ControllerServiceCapability_RPC_GET_VOLUME,
		}},
		{p.Inventory != nil && p.Attachments != nil, []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES}},
		{p.Room != nil, []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_GET_CAPACITY}},
		{p.Expansion != nil, []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_EXPAND_VOLUME}},
		{p.Change != nil, []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_MODIFY_VOLUME}},
		{p.Health != nil, []csi.ControllerServiceCapability_RPC_Type{
			csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH, csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
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
func PluginCapabilities(o Options) []csi.PluginCapability_Service_Type {
	out := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE}
	if o.Groups != nil {
		out = append(out, csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE)
	}
	if o.constrained() {
		out = append(out, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
		if o.Snapshots != nil {
			out = append(out, csi.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS)
		}
	}
	return out
}

// GroupControllerGetCapabilities says whether there are groups.
func (s *Server) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	resp := &csi.GroupControllerGetCapabilitiesResponse{}
	if s.o.Groups != nil {
		resp.Capabilities = []*csi.GroupControllerServiceCapability{{
			Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
				Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
			}},
		}}
	}
	return resp, nil
}
