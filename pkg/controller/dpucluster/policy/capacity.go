package policy

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
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

// sum adds up what is told of several places and classes; nil if nothing is told.
func sum(told []storagev1.CSIStorageCapacity) *storagev1alpha1.PolicyCapacity {
	var parts []storagev1alpha1.PlaceCapacity
	for i := range told {
		c := &told[i]
		if c.Capacity == nil {
			continue // csi-provisioner did not learn it
		}
		part := storagev1alpha1.PlaceCapacity{Available: *c.Capacity, MaximumVolumeSize: c.MaximumVolumeSize}
		if c.NodeTopology != nil && len(c.NodeTopology.MatchLabels) > 0 {
			part.Topology = c.NodeTopology.MatchLabels
		}
		parts = append(parts, part)
	}
	return storagev1alpha1.CapacityOf(parts)
}
