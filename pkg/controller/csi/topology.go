package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// constrained reports whether volumes and snapshots are not reached from
// everywhere.
func (o Options) constrained() bool { return o.Places || len(o.Topology) > 0 }

// topology is where a volume or a snapshot is reached from; it has said own.
func (s *Server) topology(own []provisioner.Place) []*csispec.Topology {
	switch {
	case s.o.Places:
	case len(s.o.Topology) == 0:
		return nil
	default:
		own = []provisioner.Place{s.o.Topology}
	}
	var out []*csispec.Topology
	for _, p := range own {
		out = append(out, &csispec.Topology{Segments: p})
	}
	return out
}

// placesOf are the places from one of which something has to be reached, the
// most preferred first. Those that are only preferred are, if they are the only
// ones, a wish, but one that says where the CO will look.
func placesOf(want *csispec.TopologyRequirement) []provisioner.Place {
	var out []provisioner.Place
	for _, t := range slices.Concat(want.GetPreferred(), want.GetRequisite()) {
		p := t.GetSegments()
		if !slices.ContainsFunc(out, func(o provisioner.Place) bool { return same(o, p) }) {
			out = append(out, p)
		}
	}
	return out
}

func same(a, b provisioner.Place) bool {
	return len(a) == len(b) && provisioner.ReachFrom(a, []provisioner.Place{b}) == provisioner.Reached
}

// reachable refuses what has to be reached from other places only than the
// platform's volumes are (CSI spec "TopologyRequirement": RESOURCE_EXHAUSTED if
// requisite cannot be met).
func (s *Server) reachable(want *csispec.TopologyRequirement) error {
	if s.o.Places {
		return nil // the platform judges
	}
	return meets(s.o.Topology, placesOf(want))
}

// meets refuses what is reached where all of at holds, if it has to be reached
// from places none of which lies there.
func meets(at provisioner.Place, wanted []provisioner.Place) error {
	covered := func(p provisioner.Place) bool {
		return provisioner.ReachFrom(at, []provisioner.Place{p}) == provisioner.Reached
	}
	if len(at) == 0 || len(wanted) == 0 || slices.ContainsFunc(wanted, covered) {
		return nil
	}
	return fmt.Errorf("it is wanted where %v, and can be reached where %v only: %w", wanted, at, provisioner.ErrExhausted)
}

// keepable refuses a snapshot that has to be reached from places none of which
// its volume is reached from. One whose volume is gone is there, or never will
// be: the platform says which.
func (s *Server) keepable(ctx context.Context, volumeID string, wanted []provisioner.Place) error {
	if !s.o.Places || len(wanted) == 0 {
		return nil
	}
	v, err := s.o.Volumes.Get(ctx, volumeID)
	if err != nil {
		if errors.Is(err, provisioner.ErrNotFound) {
			return nil
		}
		return err
	}
	may := func(p provisioner.Place) bool {
		return provisioner.ReachFrom(p, v.AccessibleTopology) != provisioner.Elsewhere
	}
	if !slices.ContainsFunc(wanted, may) {
		return fmt.Errorf("it is wanted where %v, and its volume is reached where %v only: %w", wanted, v.AccessibleTopology, provisioner.ErrExhausted)
	}
	return nil
}

// reachedFrom are those of the places wanted from which something is reached
// that says own; own itself, if there are none to choose from.
func reachedFrom(own, wanted []provisioner.Place) []provisioner.Place {
	var out []provisioner.Place
	for _, p := range wanted {
		if len(own) > 0 && provisioner.ReachFrom(p, own) == provisioner.Reached {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return own
	}
	return out
}
