// Package dpupairing names the DPU of each host in its DPUStorageNode, from DPF's DPU
// objects in the host cluster, so that no installer has to. A DPU that is named already
// stays: what it shows is not over because DPF says another.
package dpupairing

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// DPU is what counts of DPF's object.
type DPU struct {
	// Name is that of the object, and of the DPU's Node in the DPU cluster.
	Name string
	// Host is spec.dpuNodeName: the host's Node, or in zero-trust mode that of the DPUNode.
	Host string
	// Preferred: the object has the annotation storage.nvidia.com/preferred-dpu, by which
	// DPF tells the DPU for storage from the others of a host. Its value does not count.
	Preferred bool
	// ZeroTrust is status.deploymentMode.
	ZeroTrust bool
	// Cluster is spec.cluster, which never changes, as "namespace/name" of a DPUCluster; "" if
	// the object names none.
	Cluster string
}

// decision is what is to be done about a host; all empty: nothing.
type decision struct {
	// create is the DPUStorageNode to make.
	create *moorv1alpha1.DPUStorageNode
	// name is the DPU to name in the one that is there, and cluster its DPU cluster, where there are several.
	name, cluster string
	// words say what a person has to decide.
	words string
}

// decide says what is to be done about a host with these DPUs, all of them its own. node is
// nil if it has no DPUStorageNode: that of a trusted host is made by its node plugin.
func decide(host string, dpus []DPU, node *moorv1alpha1.DPUStorageNode) decision {
	if len(dpus) == 0 || node != nil && !node.DeletionTimestamp.IsZero() {
		return decision{}
	}
	dpu, words := choose(dpus)
	switch {
	case node != nil && slices.ContainsFunc(dpus, func(d DPU) bool { return d.Name == node.Spec.DPUName }):
		return decision{} // several, and one of them is named
	case words != "":
		return decision{words: words}
	case node == nil && dpu.ZeroTrust:
		return decision{create: &moorv1alpha1.DPUStorageNode{
			ObjectMeta: metav1.ObjectMeta{Name: host},
			Spec:       moorv1alpha1.DPUStorageNodeSpec{DPUName: dpu.Name, HostMode: moorv1alpha1.ZeroTrust},
		}}
	case node == nil:
		return decision{}
	case node.Spec.DPUName == "":
		return decision{name: dpu.Name}
	}
	return decision{words: fmt.Sprintf("DPF has DPU %s in this host, and spec.dpuName is %s: if the card was replaced, name %s there, and %s in spec.replaces",
		dpu.Name, node.Spec.DPUName, dpu.Name, node.Spec.DPUName)}
}

// among decides for the controller of one of several DPU clusters: about the DPUs of that one alone, and about no
// host that is in another. A host is in the DPU cluster of its DPU, as DPF says.
func among(cluster, host string, dpus []DPU, node *moorv1alpha1.DPUStorageNode) decision {
	if node != nil && node.Spec.DPUCluster != "" && node.Spec.DPUCluster != cluster {
		return decision{}
	}
	if i := slices.IndexFunc(dpus, func(d DPU) bool { return d.Cluster == "" }); i >= 0 && node != nil && node.Spec.DPUCluster == "" {
		return decision{words: fmt.Sprintf("DPF has DPU %s in this host, and does not say in which of several DPU clusters: set spec.dpuCluster and spec.dpuName", dpus[i].Name)}
	}
	mine := slices.DeleteFunc(slices.Clone(dpus), func(d DPU) bool { return d.Cluster != cluster })
	d := decide(host, mine, node)
	switch {
	case d.create != nil:
		d.create.Spec.DPUCluster = cluster
	case d.name != "":
		d.cluster = cluster
	case d.words == "" && node != nil && node.DeletionTimestamp.IsZero() && node.Spec.DPUCluster == "" && len(mine) > 0:
		return decision{name: node.Spec.DPUName, cluster: cluster} // it is named, and not yet with its DPU cluster
	}
	return d
}

// of are those DPUs that are in a DPU cluster; of "", and of those that name none, all are.
func of(cluster string, dpus []DPU) []DPU {
	return slices.DeleteFunc(slices.Clone(dpus), func(d DPU) bool { return cluster != "" && d.Cluster != "" && d.Cluster != cluster })
}

// foreign are the words for a host whose DPUs are all in other clusters.
func foreign(dpus []DPU, cluster string) string {
	return fmt.Sprintf("DPF has DPU %s in this host, in DPU cluster %s, and snap-host-controller serves %s: it shows no volume to this host", dpus[0].Name, dpus[0].Cluster, cluster)
}

// several are the words for a controller that does not know which of some clusters it serves.
func several(clusters []string) string {
	return fmt.Sprintf("DPF has DPUs in several DPU clusters, %s, and snap-host-controller serves one: tell it which by --dpucluster-name and --dpucluster-namespace, or name the DPU in spec.dpuName",
		strings.Join(clusters, ", "))
}

// choose is the DPU for storage of a host that has at least one, by DPF's rule; or words
// that say what is missing.
func choose(dpus []DPU) (DPU, string) {
	if len(dpus) == 1 {
		return dpus[0], ""
	}
	preferred := slices.DeleteFunc(slices.Clone(dpus), func(d DPU) bool { return !d.Preferred })
	if len(preferred) == 1 {
		return preferred[0], ""
	}
	var names []string
	for _, d := range dpus {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	return DPU{}, fmt.Sprintf("DPF has several DPUs in this host, %s, and %d of them have the annotation %s: one has to, or is named in spec.dpuName",
		strings.Join(names, ", "), len(preferred), PreferredAnnotation)
}
