package devcluster

import "slices"

// DPUGroup is a DPU cluster and the DPUs that are its nodes.
type DPUGroup struct {
	Cluster string
	DPUs    []string
}

// DPUClusters lists the DPU clusters. Of two, the first has the DPUs of the first half of the hosts.
func (c *Cluster) DPUClusters() []DPUGroup {
	all := c.DPUs()
	if !c.meta.Options.TwoDPUClusters {
		return []DPUGroup{{DPUCluster, all}}
	}
	half := len(all) / 2
	return []DPUGroup{{DPUCluster, all[:half]}, {SecondDPUCluster, all[half:]}}
}

// clusterOf is the DPU cluster of a DPU.
func (c *Cluster) clusterOf(dpu string) string {
	groups := c.DPUClusters()
	return groups[slices.IndexFunc(groups, func(g DPUGroup) bool { return slices.Contains(g.DPUs, dpu) })].Cluster
}
