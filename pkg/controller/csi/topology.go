package csi

import (
	"fmt"
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// topology is where volumes and snapshots are reached from.
func (s *Server) topology() []*csi.Topology {
	if len(s.o.Topology) == 0 {
		return nil
	}
	return []*csi.Topology{{Segments: s.o.Topology}}
}

// reachable refuses what has to be reached from other places only (CSI spec
// "TopologyRequirement": RESOURCE_EXHAUSTED if requisite cannot be met).
func (s *Server) reachable(want *csi.TopologyRequirement) error {
	places := want.GetRequisite()
	if len(places) == 0 {
		places = want.GetPreferred() // a wish, but the only one: it says where the CO will look
	}
	if len(s.o.Topology) == 0 || len(places) == 0 || slices.ContainsFunc(places, s.covers) {
		return nil
	}
	return fmt.Errorf("it is wanted where %v, and can be reached where %v only: %w", words(places), s.o.Topology, provisioner.ErrExhausted)
}

// covers reports whether all that a place says holds for the platform.
func (s *Server) covers(place *csi.Topology) bool {
	for k, v := range place.GetSegments() {
		if s.o.Topology[k] != v {
			return false
		}
	}
	return true
}

func words(places []*csi.Topology) []map[string]string {
	out := make([]map[string]string, 0, len(places))
	for _, p := range places {
		out = append(out, maps.Clone(p.GetSegments()))
	}
	return out
}
