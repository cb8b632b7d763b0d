package localvendor

import (
	"fmt"
	"slices"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// choose returns the place of a new volume: the first of those wanted, the most
// preferred first, at which there is storage; any if none is wanted. ErrExhausted
// if there is storage at none of them.
func (s *Storage) choose(wanted []provisioner.Place) (provisioner.Place, error) {
	if len(s.places) == 0 {
		return nil, nil
	}
	if len(wanted) == 0 {
		return s.places[0], nil
	}
	for _, w := range wanted {
		if i := s.near(w); i >= 0 {
			return s.places[i], nil
		}
	}
	return nil, fmt.Errorf("it is wanted where %v, and there is storage where %v only: %w", wanted, s.places, provisioner.ErrExhausted)
}

// near is the index of the first place that is reached from where at tells; -1 if
// there is none.
func (s *Storage) near(at provisioner.Place) int {
	return slices.IndexFunc(s.places, func(p provisioner.Place) bool { return lies(at, p) })
}

// offers reports whether a volume can be made that is reached from where at tells.
func (s *Storage) offers(at provisioner.Place) bool { return len(s.places) == 0 || s.near(at) >= 0 }

// lies reports whether what is at a place is reached from where at tells.
func lies(at, place provisioner.Place) bool {
	return provisioner.ReachFrom(at, records.Reach(place)) == provisioner.Reached
}

// serves reports whether what is at a place is where it is wanted.
func serves(place provisioner.Place, wanted []provisioner.Place) bool {
	return len(wanted) == 0 || slices.ContainsFunc(wanted, func(w provisioner.Place) bool { return lies(w, place) })
}

// since is the place of what a record says is at one. Without a place it was made
// before there were several: it is at the first.
func (s *Storage) since(recorded provisioner.Place) provisioner.Place {
	if len(recorded) == 0 && len(s.places) > 0 {
		return s.places[0]
	}
	return recorded
}
