package hostcluster

import (
	"maps"
	"slices"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// Place adds to a place the DPU cluster that is served here, where there are several.
func (c Clusters) Place(place map[string]string) {
	if c.Several() {
		place[moorv1alpha1.TopologyDPUCluster] = c.label()
	}
}

// Places are the places from which what was made here is reached, as the host cluster needs
// them: from hosts of other DPU clusters it is not, whatever their labels are.
func (c Clusters) Places(there []map[string]string) []map[string]string {
	if !c.Several() {
		return there
	}
	if len(there) == 0 {
		there = []map[string]string{{}}
	}
	out := make([]map[string]string, 0, len(there))
	for _, place := range there {
		at := map[string]string{}
		maps.Copy(at, place)
		c.Place(at)
		out = append(out, at)
	}
	return out
}

// Capacity is what is free for a policy in all DPU clusters: of what is on record, the parts that the
// others tell of, and what the one that is served here does. Each part names its DPU cluster.
func (c Clusters) Capacity(recorded, here *storagev1alpha1.PolicyCapacity) *storagev1alpha1.PolicyCapacity {
	if !c.Several() {
		return here
	}
	var parts []storagev1alpha1.PlaceCapacity
	if recorded != nil {
		parts = slices.DeleteFunc(slices.Clone(recorded.Places), func(p storagev1alpha1.PlaceCapacity) bool {
			in := p.Topology[moorv1alpha1.TopologyDPUCluster]
			return in == "" || in == c.label()
		})
	}
	if here != nil {
		parts = append(parts, c.parts(here)...)
	}
	return storagev1alpha1.CapacityOf(parts)
}

// parts are the parts of what is free in the DPU cluster that is served here.
func (c Clusters) parts(of *storagev1alpha1.PolicyCapacity) []storagev1alpha1.PlaceCapacity {
	parts := slices.Clone(of.Places)
	if len(parts) == 0 {
		parts = []storagev1alpha1.PlaceCapacity{{Available: of.Available, MaximumVolumeSize: of.MaximumVolumeSize}}
	}
	for i := range parts {
		parts[i].Topology = c.Places([]map[string]string{parts[i].Topology})[0]
	}
	return parts
}

// Wanted are those of the places from one of which a volume has to be reached that are in the DPU cluster
// which is served here, or do not say in which, as that needs them.
func (c Clusters) Wanted(places []map[string]string) []map[string]string {
	if !c.Several() {
		return places
	}
	var out []map[string]string
	for _, place := range places {
		in, said := place[moorv1alpha1.TopologyDPUCluster]
		if said && in != c.label() {
			continue
		}
		place = maps.Clone(place)
		delete(place, moorv1alpha1.TopologyDPUCluster)
		out = append(out, place)
	}
	return out
}
