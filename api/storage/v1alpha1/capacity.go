package v1alpha1

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
)

// CapacityOf adds up the parts of what is free for a policy, and keeps apart those of different
// places if there are any; nil without a part. It changes none of the parts.
func CapacityOf(parts []PlaceCapacity) *PolicyCapacity {
	if len(parts) == 0 {
		return nil
	}
	out := &PolicyCapacity{Available: *resource.NewQuantity(0, resource.BinarySI)}
	for _, p := range parts {
		out.Available.Add(p.Available)
		out.MaximumVolumeSize = larger(out.MaximumVolumeSize, p.MaximumVolumeSize)
	}
	if slices.ContainsFunc(parts, func(p PlaceCapacity) bool { return len(p.Topology) > 0 }) {
		out.Places = merged(parts)
	}
	return out
}

// merged is one entry for each place, in an order that depends on nothing else.
func merged(parts []PlaceCapacity) []PlaceCapacity {
	named := func(p PlaceCapacity) string { return labels.FormatLabels(p.Topology) }
	parts = slices.SortedStableFunc(slices.Values(parts), func(a, b PlaceCapacity) int { return cmp.Compare(named(a), named(b)) })
	var out []PlaceCapacity
	for _, p := range parts {
		if last := len(out) - 1; last >= 0 && named(out[last]) == named(p) {
			out[last].Available = out[last].Available.DeepCopy()
			out[last].Available.Add(p.Available)
			out[last].MaximumVolumeSize = larger(out[last].MaximumVolumeSize, p.MaximumVolumeSize)
			continue
		}
		out = append(out, p)
	}
	return out
}

func larger(a, b *resource.Quantity) *resource.Quantity {
	if a == nil || b != nil && a.Cmp(*b) < 0 {
		return b
	}
	return a
}
