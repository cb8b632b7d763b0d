package state

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/placement"
)

// Index is the state of the cluster at one moment. It never changes.
type Index struct {
	// claims leads from "namespace/name" of a bound claim to its volume.
	claims *table[string]
	// volumes are the drivers' PersistentVolumes, by name.
	volumes *table[persistent]
	// copies are where a volume is warm, by the volume's handle.
	copies *table[copies]
	// nodes by name.
	nodes *table[*placement.Node]
}

// persistent is what counts of a PersistentVolume.
type persistent struct {
	handle string
	// vendor is empty if the volume names none.
	vendor   string
	function placement.Function
}

// copies are the attachments of a volume, in two slices of one length: the
// second is given out as it is, and so is never written to.
type copies struct {
	attachments []string
	warm        []placement.Copy
}

func empty() *Index {
	return &Index{claims: &table[string]{}, volumes: &table[persistent]{}, copies: &table[copies]{}, nodes: &table[*placement.Node]{}}
}

// Volumes are the drivers' volumes that a pod uses, each once, with their
// copies. Claims that are unknown or not bound, and other drivers' volumes,
// are left out: nothing can be said of them. The copies must not be changed.
func (x *Index) Volumes(pod *corev1.Pod) []placement.Volume {
	var out []placement.Volume
	for i := range pod.Spec.Volumes {
		claim := podvolume.ClaimName(pod, &pod.Spec.Volumes[i])
		if claim == "" {
			continue
		}
		name, bound := x.claims.get(pod.Namespace + "/" + claim)
		if !bound {
			continue
		}
		v, ours := x.volumes.get(name)
		if !ours || slices.ContainsFunc(out, func(o placement.Volume) bool { return o.ID == v.handle }) {
			continue
		}
		c, _ := x.copies.get(v.handle)
		out = append(out, placement.Volume{ID: v.handle, Vendor: v.vendor, Function: v.function, Copies: c.warm})
	}
	return out
}

// unknown stands for every node without a DPUStorageNode. It needs no name: it
// is refused before it is asked what is warm there.
var unknown = placement.Node{
	NoDPU: "the node has no DPUStorageNode: it has no DPU, or snap-csi-plugin does not run there",
	Free:  placement.UnknownFree(),
}

// Node is what is known of a node. It must not be changed.
func (x *Index) Node(name string) *placement.Node {
	if n, ok := x.nodes.get(name); ok {
		return n
	}
	return &unknown
}

// Size is how many objects the index holds.
type Size struct {
	Claims, Volumes, WarmVolumes, Nodes int
}

// Size counts the objects.
func (x *Index) Size() Size {
	return Size{Claims: x.claims.size, Volumes: x.volumes.size, WarmVolumes: x.copies.size, Nodes: x.nodes.size}
}
