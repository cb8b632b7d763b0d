package state

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/moor-storage/moor/pkg/placement"
)

// Ranking answers what there is to say of nodes for one pod, from one state of
// the cluster. It never changes and may be used by many at once. It is the one
// place where the scheduler's questions, however they come, are answered.
type Ranking struct {
	index *Index
	pod   *placement.Pod
}

// Rank prepares the answers for a pod; false if it uses no volume of the
// drivers: then there is nothing to say.
func (x *Index) Rank(pod *corev1.Pod) (Ranking, bool) {
	volumes := x.Volumes(pod)
	if len(volumes) == 0 {
		return Ranking{}, false
	}
	return Ranking{index: x, pod: placement.NewPod(volumes)}, true
}

// Refuse says whether the node cannot serve the pod's volumes at all.
func (r Ranking) Refuse(node string) placement.Refusal { return r.pod.Refuse(r.index.Node(node)) }

// Score is how near the node is to the pod's volumes, 0 to placement.MaxScore.
func (r Ranking) Score(node string) int {
	if !r.pod.IsWarm(node) {
		return 0
	}
	return r.pod.Score(r.index.Node(node))
}

// AnyWarm reports whether a node can have a score above 0.
func (r Ranking) AnyWarm() bool { return r.pod.WarmNodes() > 0 }

// IsNear reports whether a replica or a primary of the pod's volumes stands
// ready on the node, which can serve for sure.
func (r Ranking) IsNear(node string) bool {
	return r.pod.IsWarm(node) && r.pod.Near(r.index.Node(node))
}

// Near are the nodes for which IsNear is true, in no order.
func (r Ranking) Near() []string {
	var out []string
	for node := range r.pod.Warm() {
		if r.IsNear(node) {
			out = append(out, node)
		}
	}
	return out
}
