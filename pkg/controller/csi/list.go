package csi

import (
	"context"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"strings"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// ListVolumes returns a page of the volumes, with the nodes that have them.
func (s *Server) ListVolumes(ctx context.Context, req *csispec.ListVolumesRequest) (*csispec.ListVolumesResponse, error) {
	if s.o.Inventory == nil {
		return nil, unsupported("list volumes")
	}
	page, err := listVolumes.page(req.GetStartingToken(), req.GetMaxEntries())
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	entries, next, err := s.o.Inventory.List(ctx, page)
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	resp := &csispec.ListVolumesResponse{NextToken: listVolumes.token(next)}
	for _, e := range entries {
		resp.Entries = append(resp.Entries, &csispec.ListVolumesResponse_Entry{
			Volume: s.volume(e.Volume), Status: &csispec.ListVolumesResponse_VolumeStatus{PublishedNodeIds: e.Nodes},
		})
	}
	return resp, nil
}

// ControllerGetVolume returns one volume, with the nodes that have it.
func (s *Server) ControllerGetVolume(ctx context.Context, req *csispec.ControllerGetVolumeRequest) (*csispec.ControllerGetVolumeResponse, error) {
	id := req.GetVolumeId()
	if s.o.Inventory == nil {
		return nil, unsupported("get volume %q", id)
	}
	if err := csiserver.Require("volume id", id); err != nil {
		return nil, fmt.Errorf("get volume: %w", err)
	}
	e, err := s.o.Inventory.Look(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("get volume %q: %w", id, err)
	}
	return &csispec.ControllerGetVolumeResponse{
		Volume: s.volume(e.Volume), Status: &csispec.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: e.Nodes},
	}, nil
}

// GetCapacity returns the room for volumes of a StorageClass in a place.
func (s *Server) GetCapacity(ctx context.Context, req *csispec.GetCapacityRequest) (*csispec.GetCapacityResponse, error) {
	if s.o.Room == nil {
		return nil, unsupported("get capacity")
	}
	var from provisioner.Place
	if place := req.GetAccessibleTopology(); place != nil && s.o.Places {
		from = place.GetSegments()
	} else if place != nil && meets(s.o.Topology, []provisioner.Place{place.GetSegments()}) != nil {
		return &csispec.GetCapacityResponse{}, nil // nothing can be made there
	}
	parameters := platformsOwn(req.GetParameters())
	if len(parameters) > 0 {
		var err error
		if parameters, err = s.o.Normalize(parameters); err != nil {
			return nil, fmt.Errorf("get capacity: %w", err)
		}
	}
	c, err := s.o.Room.Capacity(ctx, parameters, from)
	if err != nil {
		return nil, fmt.Errorf("get capacity: %w", err)
	}
	return &csispec.GetCapacityResponse{
		AvailableCapacity: c.Available, MaximumVolumeSize: known(c.Largest), MinimumVolumeSize: known(c.Smallest),
	}, nil
}

// known is a number of bytes, or nil for 0.
func known(n int64) *wrapperspb.Int64Value {
	if n == 0 {
		return nil
	}
	return wrapperspb.Int64(n)
}

// list names a list: a token of one is no token of another.
type list string

// The lists.
const (
	listVolumes   list = "volumes"
	listSnapshots list = "snapshots"
	listHealth    list = "health"
)

// token is what a caller gets to go on after the ID: the ID itself, so that a
// restart of the driver and whatever comes and goes leave it valid, with a
// checksum by which made-up ones are told apart.
func (l list) token(after string) string {
	if after == "" {
		return ""
	}
	text := string(l) + "\x00" + after
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%08x%s", crc32.ChecksumIEEE([]byte(text)), text))
}

// after is token read backwards; ErrToken for what is no token of the list.
func (l list) after(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	_, after, ok := strings.Cut(string(raw), "\x00")
	if err != nil || !ok || l.token(after) != token {
		return "", fmt.Errorf("starting_token %q is none of this list of %s: %w", token, l, provisioner.ErrToken)
	}
	return after, nil
}

// page reads what a request for a part of a list asks for.
func (l list) page(token string, most int32) (provisioner.Page, error) {
	if most < 0 {
		return provisioner.Page{}, csiserver.Invalid("max_entries is %d, it may not be negative", most)
	}
	after, err := l.after(token)
	return provisioner.Page{After: after, Max: int(most)}, err
}
