package moor

import (
	"fmt"
	"path/filepath"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/kit"
)

// dpuSite is a DPU cluster, as what runs for it is told of it. All of that is in the hub, so
// each has names, sockets and ports of its own. Each has a storage target of its own too: one
// directory has one vendor's controller.
type dpuSite struct {
	devcluster.DPUGroup
	// index is 0 for the DPU cluster that every bed has.
	index int
}

func dpuSites(c cluster) []dpuSite {
	var out []dpuSite
	for i, of := range c.DPUClusters() {
		out = append(out, dpuSite{of, i})
	}
	return out
}

// name is that of a process for this DPU cluster.
func (s dpuSite) name(process string) string {
	if s.index == 0 {
		return process
	}
	return process + "-" + s.Cluster
}

// socket is in the hub's own directory; short, as unix sockets must be.
func (s dpuSite) socket(name string) string {
	return filepath.Join(layout.MachineDataDir, s.name(name)+".sock")
}

// sitePorts is how far the ports of two DPU clusters are apart.
const sitePorts = 30

func (s dpuSite) metrics(first int) string { return s.listens("--metrics-bind-address", first) }

func (s dpuSite) health(first int) string { return s.listens("--health-probe-bind-address", first) }

func (s dpuSite) listens(flag string, first int) string {
	return fmt.Sprintf("%s=:%d", flag, first+sitePorts*s.index)
}

// target ends an argument with the port of the storage target.
func (s dpuSite) target(argument string) string {
	return fmt.Sprint(argument, layout.TargetPort+s.index)
}

// targetDir is where the volumes are. The logs of what reaches the medium are in one directory
// for all: no two volumes have one name.
func (s dpuSite) targetDir() string {
	if s.index == 0 {
		return layout.TargetDir
	}
	return filepath.Join(layout.TargetDir, s.Cluster)
}

// several are the flags of a snap-host-controller on a bed with several DPU clusters.
func (s dpuSite) several(c cluster) []string {
	if !c.Options().TwoDPUClusters {
		return nil
	}
	return []string{"--several-dpu-clusters", "--dpucluster-namespace=" + kit.Namespace, "--dpucluster-name=" + s.Cluster}
}

// DPUClusterName is the name of a DPU cluster in objects of a bed with several.
func DPUClusterName(cluster string) string { return kit.Namespace + "/" + cluster }
