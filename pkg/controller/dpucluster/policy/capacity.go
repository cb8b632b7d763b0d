package policy

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
)

// capacity is the room that the vendors of a policy have, by what csi-provisioner
// writes down beside each vendor's driver. A class that two vendors share counts
// once.
func (r *Reconciler) capacity(ctx context.Context, vendors []Vendor) (*storagev1alpha1.PolicyCapacity, error) {
	var told []storagev1.CSIStorageCapacity
	classes := map[string]bool{}
	for _, v := range vendors {
		if v.StorageClass == "" || classes[v.StorageClass] {
			continue
		}
		classes[v.StorageClass] = true
		list := &storagev1.CSIStorageCapacityList{}
		if err := r.DPU.Client.List(ctx, list, client.MatchingFields{index.CapacityByClass: v.StorageClass}); err != nil {
			return nil, fmt.Errorf("find the capacity of StorageClass %s: %w", v.StorageClass, err)
		}
		told = append(told, list.Items...)
	}
	return sum(told), nil
}

// sum adds up what is told of several places and classes, and keeps the places
// apart if there are any; nil if nothing is told.
func sum(told []storagev1.CSIStorageCapacity) *storagev1alpha1.PolicyCapacity {
	var out *storagev1alpha1.PolicyCapacity
	var places []storagev1alpha1.PlaceCapacity
	some := false
	for i := range told {
		c := &told[i]
		if c.Capacity == nil {
			continue // csi-provisioner did not learn it
		}
		if out == nil {
			out = &storagev1alpha1.PolicyCapacity{Available: *resource.NewQuantity(0, resource.BinarySI)}
		}
		out.Available.Add(*c.Capacity)
		out.MaximumVolumeSize = larger(out.MaximumVolumeSize, c.MaximumVolumeSize)
		place := storagev1alpha1.PlaceCapacity{Available: *c.Capacity, MaximumVolumeSize: c.MaximumVolumeSize}
		if c.NodeTopology != nil && len(c.NodeTopology.MatchLabels) > 0 {
			place.Topology, some = c.NodeTopology.MatchLabels, true
		}
		places = append(places, place)
	}
	if some {
		out.Places = merged(places)
	}
	return out
}

// merged is one entry for each place, in an order that depends on nothing else.
func merged(places []storagev1alpha1.PlaceCapacity) []storagev1alpha1.PlaceCapacity {
	named := func(p storagev1alpha1.PlaceCapacity) string { return labels.FormatLabels(p.Topology) }
	slices.SortStableFunc(places, func(a, b storagev1alpha1.PlaceCapacity) int { return cmp.Compare(named(a), named(b)) })
	var out []storagev1alpha1.PlaceCapacity
	for _, p := range places {
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
