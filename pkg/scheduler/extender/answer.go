package extender

import (
	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/scheduler/state"
)

// filter answers which nodes can serve a pod, and has a pod that was refused by
// one wait for it.
func (h *Handler) filter(args *extenderv1.ExtenderArgs) any {
	if len(podvolume.Claims(args.Pod)) == 0 {
		return all(args)
	}
	h.o.Refused.Begin(args.Pod)
	out := filter(h.o.Source.Index(), args)
	if len(out.FailedNodes)+len(out.FailedAndUnresolvableNodes) == 0 {
		h.o.Refused.End(args.Pod.UID)
	}
	return out
}

func (h *Handler) prioritize(args *extenderv1.ExtenderArgs) any {
	return prioritize(h.o.Source.Index(), args)
}

// all leaves out nothing.
func all(args *extenderv1.ExtenderArgs) *extenderv1.ExtenderFilterResult {
	return &extenderv1.ExtenderFilterResult{Nodes: args.Nodes, NodeNames: args.NodeNames}
}

// filter leaves out the nodes that cannot serve the pod's volumes at all. A
// node goes among the unresolvable ones if no preemption would help there. It
// answers in the form of the question, as names or as whole nodes.
func filter(index *state.Index, args *extenderv1.ExtenderArgs) *extenderv1.ExtenderFilterResult {
	ranking, ours := index.Rank(args.Pod)
	if !ours {
		return all(args)
	}
	out := &extenderv1.ExtenderFilterResult{FailedNodes: extenderv1.FailedNodesMap{}, FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{}}
	passes := func(name string) bool {
		no := ranking.Refuse(name)
		switch {
		case no.Final:
			out.FailedAndUnresolvableNodes[name] = no.Reason
		case no.Refused():
			out.FailedNodes[name] = no.Reason
		}
		return !no.Refused()
	}
	if args.NodeNames != nil {
		names := make([]string, 0, len(*args.NodeNames))
		for _, name := range *args.NodeNames {
			if passes(name) {
				names = append(names, name)
			}
		}
		out.NodeNames = &names
	}
	if args.Nodes != nil {
		out.Nodes = &corev1.NodeList{Items: []corev1.Node{}}
		for i := range args.Nodes.Items {
			if passes(args.Nodes.Items[i].Name) {
				out.Nodes.Items = append(out.Nodes.Items, args.Nodes.Items[i])
			}
		}
	}
	return out
}

// prioritize scores the nodes that have anything of the pod's volumes. The
// answer is sparse: kube-scheduler adds nothing to a node that is not in it.
func prioritize(index *state.Index, args *extenderv1.ExtenderArgs) extenderv1.HostPriorityList {
	out := extenderv1.HostPriorityList{}
	ranking, ours := index.Rank(args.Pod)
	if !ours || !ranking.AnyWarm() {
		return out
	}
	score := func(name string) {
		if s := ranking.Score(name); s > 0 {
			out = append(out, extenderv1.HostPriority{Host: name, Score: int64(s)})
		}
	}
	if args.NodeNames != nil {
		for _, name := range *args.NodeNames {
			score(name)
		}
		return out
	}
	for i := range args.Nodes.Items {
		score(args.Nodes.Items[i].Name)
	}
	return out
}
