// Package places is where the reference vendor has storage: which of the places a
// new volume is made at, and from where what is at a place is reached.
package places

import (
	"fmt"
	"slices"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// Places are where there is storage. None: there are no places, and what is made
// is reached from everywhere.
type Places []provisioner.Place

// Choose returns the place of a new volume: the first of those wanted, the most
// preferred first, at which there is storage; any if none is wanted. ErrExhausted
// if there is storage at none of them.
func (s Places) Choose(wanted []provisioner.Place) (provisioner.Place, error) {
	if len(s) == 0 {
		return nil, nil
	}
	if len(wanted) == 0 {
		return s[0], nil
	}
	for _, w := range wanted {
		if i := s.near(w); i >= 0 {
			return s[i], nil
		}
	}
	return nil, fmt.Errorf("it is wanted where %v, and there is storage where %v only: %w", wanted, []provisioner.Place(s), provisioner.ErrExhausted)
}

// near is the index of the first place that is reached from where at tells; -1 if
// there is none.
func (s Places) near(at provisioner.Place) int {
	return slices.IndexFunc(s, func(p provisioner.Place) bool { return lies(at, p) })
}

// Offer reports whether a volume can be made that is reached from where at tells.
func (s Places) Offer(at provisioner.Place) bool { return len(s) == 0 || s.near(at) >= 0 }

// Since is the place of what a record says is at one. Without a place it was made
// before there were several: it is at the first.
func (s Places) Since(recorded provisioner.Place) provisioner.Place {
	if len(recorded) == 0 && len(s) > 0 {
		return s[0]
	}
	return recorded
}

// Serves reports whether what is at a place is where it is wanted.
func Serves(place provisioner.Place, wanted []provisioner.Place) bool {
	return len(wanted) == 0 || slices.ContainsFunc(wanted, func(w provisioner.Place) bool { return lies(w, place) })
}

// Reach is from where what is at a place is reached; none, for everywhere, if it
// is at no place.
func Reach(place provisioner.Place) []provisioner.Place {
	if len(place) == 0 {
		return nil
	}
	return []provisioner.Place{place}
}

// lies reports whether what is at a place is reached from where at tells.
func lies(at, place provisioner.Place) bool {
	return provisioner.ReachFrom(at, Reach(place)) == provisioner.Reached
}
