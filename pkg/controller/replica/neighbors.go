package replica

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
)

// neighborsOf reads what the pods of the cluster make of each of a volume's pods.
// Where no pod demands anything of another, nothing is read. Pods on the
// primary's host count for nothing: what a replica is for is that they are gone.
func (r *Reconciler) neighborsOf(ctx context.Context, s *pass, pods []*corev1.Pod) ([]neighbors, error) {
	near, err := r.near(ctx, pods)
	if err != nil {
		return nil, err
	}
	var others []*corev1.Pod
	for _, p := range near {
		own := slices.ContainsFunc(pods, func(o *corev1.Pod) bool { return o.Namespace == p.Namespace && o.Name == p.Name })
		if alive(p) && !own && p.Spec.NodeName != s.primary().Spec.DPUNodeName {
			others = append(others, p)
		}
	}
	places, err := r.places(ctx, others)
	if err != nil {
		return nil, err
	}
	namespaces, err := r.namespaces(ctx, slices.Concat(pods, others))
	if err != nil {
		return nil, err
	}
	var out []neighbors
	for _, p := range pods {
		out = append(out, gather(p, places, namespaces))
	}
	return out, nil
}

// near are the pods of which the demands of some pods may speak, and those whose demands
// may speak of them. They are the cache's own.
func (r *Reconciler) near(ctx context.Context, pods []*corev1.Pod) ([]*corev1.Pod, error) {
	from := map[string][]client.ListOption{} // by what is listed, each once
	for _, p := range pods {
		from["demands on "+p.Namespace] = demandsOn(p.Namespace)
		switch on := index.DemandsOn(p); on {
		case "":
		case index.AnyNamespace:
			return r.pods(ctx)
		default:
			from["pods of "+on] = []client.ListOption{client.InNamespace(on)}
		}
	}
	if len(pods) > 0 {
		from["demands on any"] = demandsOn(index.AnyNamespace)
	}
	var out []*corev1.Pod
	seen := map[types.UID]bool{}
	for _, options := range from {
		list, err := r.pods(ctx, options...)
		if err != nil {
			return nil, err
		}
		for _, p := range list {
			if !seen[p.UID] {
				out = append(out, p)
			}
			seen[p.UID] = true
		}
	}
	return out, nil
}

// demandsOn finds the pods whose demands speak of a namespace.
func demandsOn(namespace string) []client.ListOption {
	return []client.ListOption{client.MatchingFields{index.PodWithAffinity: namespace}}
}

// pods lists pods, without copies.
func (r *Reconciler) pods(ctx context.Context, options ...client.ListOption) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := r.Host.Client.List(ctx, &list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("list the pods that may be near: %w", err)
	}
	out := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}

// places reads the labels of the nodes of pods; a pod whose node is gone is
// nowhere.
func (r *Reconciler) places(ctx context.Context, pods []*corev1.Pod) ([]place, error) {
	nodes, out := map[string]map[string]string{}, make([]place, 0, len(pods))
	for _, p := range pods {
		known, ok := nodes[p.Spec.NodeName]
		if !ok {
			node := &corev1.Node{}
			if _, err := kube.Find(ctx, r.Host.Client, client.ObjectKey{Name: p.Spec.NodeName}, node, client.UnsafeDisableDeepCopy); err != nil {
				return nil, err
			}
			known = node.Labels
			nodes[p.Spec.NodeName] = known
		}
		out = append(out, place{pod: p, node: known})
	}
	return out, nil
}

// namespaces reads the labels of all namespaces, if a pod's terms ask for them.
func (r *Reconciler) namespaces(ctx context.Context, pods []*corev1.Pod) (map[string]labels.Set, error) {
	if !slices.ContainsFunc(pods, byNamespace) {
		return nil, nil
	}
	var list corev1.NamespaceList
	if err := r.Host.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list the namespaces: %w", err)
	}
	out := map[string]labels.Set{}
	for i := range list.Items {
		out[list.Items[i].Name] = list.Items[i].Labels
	}
	return out, nil
}

// demanding are the pods with demands that may speak of a pod, or of which its own may
// speak.
func (r *Reconciler) demanding(ctx context.Context, pod *corev1.Pod) ([]*corev1.Pod, error) {
	if index.DemandsOn(pod) == index.AnyNamespace {
		all, err := r.pods(ctx)
		return slices.DeleteFunc(all, func(p *corev1.Pod) bool { return index.DemandsOn(p) == "" }), err
	}
	here, err := r.pods(ctx, demandsOn(pod.Namespace)...)
	if err != nil {
		return nil, err
	}
	others, err := r.pods(ctx, demandsOn(index.AnyNamespace)...)
	return append(here, others...), err
}

// concernedBy are the pods with demands that speak of a pod, or of which its
// own demands speak.
func (r *Reconciler) concernedBy(ctx context.Context, pod *corev1.Pod) ([]*corev1.Pod, error) {
	all, err := r.demanding(ctx, pod)
	if err != nil {
		return nil, err
	}
	namespaces, err := r.namespaces(ctx, append(slices.Clone(all), pod))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p *corev1.Pod) bool {
		for _, t := range slices.Concat(affine(p), averse(p)) {
			if selects(t, p, pod, namespaces) {
				return p.Namespace == pod.Namespace && p.Name == pod.Name
			}
		}
		for _, t := range averse(pod) {
			if selects(t, pod, p, namespaces) {
				return false
			}
		}
		return true
	}), nil
}
