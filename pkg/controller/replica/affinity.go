package replica

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/moor-storage/moor/internal/podvolume"
)

// neighbors is what a pod's own required (anti-)affinity, and that of others
// towards it, make of the other pods of the cluster: near which it may not run,
// and near which it has to.
type neighbors struct {
	// shunned says by topology key and value why the pod could not run there.
	shunned map[string]map[string]string
	// sought are, by topology key, the values where all that the pod has to
	// be near to is. A key that is not there is not asked for.
	sought map[string]map[string]bool
}

func affine(p *corev1.Pod) []corev1.PodAffinityTerm {
	if a := p.Spec.Affinity; a != nil && a.PodAffinity != nil {
		return a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

func averse(p *corev1.Pod) []corev1.PodAffinityTerm {
	if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		return a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// place is a bound pod with the labels of its node.
type place struct {
	pod  *corev1.Pod
	node map[string]string
}

// gather works out a pod's neighbors. Namespaces are the labels of namespaces by
// name, for terms that select by them.
func gather(p *corev1.Pod, others []place, namespaces map[string]labels.Set) neighbors {
	out := neighbors{shunned: map[string]map[string]string{}, sought: map[string]map[string]bool{}}
	near := affine(p)
	for _, o := range others {
		for _, t := range averse(p) {
			if selects(t, p, o.pod, namespaces) {
				out.shun(t.TopologyKey, o, "pod %s/%s runs there, which it must not be near to")
			}
		}
		for _, t := range averse(o.pod) {
			if selects(t, o.pod, p, namespaces) {
				out.shun(t.TopologyKey, o, "pod %s/%s runs there, which must not be near to it")
			}
		}
		// As kube-scheduler sees it, one pod has to match all terms.
		if len(near) == 0 || !all(near, p, o.pod, namespaces) {
			continue
		}
		for _, t := range near {
			if v, ok := o.node[t.TopologyKey]; ok {
				if out.sought[t.TopologyKey] == nil {
					out.sought[t.TopologyKey] = map[string]bool{}
				}
				out.sought[t.TopologyKey][v] = true
			}
		}
	}
	return out
}

func (c neighbors) shun(key string, o place, message string) {
	v, ok := o.node[key]
	if !ok {
		return
	}
	if c.shunned[key] == nil {
		c.shunned[key] = map[string]string{}
	}
	why := fmt.Sprintf(message, o.pod.Namespace, o.pod.Name)
	if was, ok := c.shunned[key][v]; !ok || why < was {
		c.shunned[key][v] = why
	}
}

// unsuited says why the pod could not run on a node now; "" if it could.
func (c neighbors) unsuited(node map[string]string) string {
	why := ""
	for key, values := range c.shunned {
		if message := values[node[key]]; message != "" && (why == "" || message < why) {
			why = message
		}
	}
	if why != "" {
		return why
	}
	for _, key := range sorted(c.sought) {
		if !c.sought[key][node[key]] {
			return fmt.Sprintf("what it has to be near to is not there (%s)", key)
		}
	}
	return ""
}

func sorted(m map[string]map[string]bool) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func all(terms []corev1.PodAffinityTerm, of, other *corev1.Pod, namespaces map[string]labels.Set) bool {
	return !slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return !selects(t, of, other, namespaces) })
}

// selects reports whether a term of one pod speaks of another. A term without
// namespaces speaks of its own; one that cannot be read selects none.
func selects(t corev1.PodAffinityTerm, of, other *corev1.Pod, namespaces map[string]labels.Set) bool {
	within := slices.Contains(t.Namespaces, other.Namespace)
	switch {
	case t.NamespaceSelector != nil:
		within = within || matches(t.NamespaceSelector, namespaces[other.Namespace])
	case len(t.Namespaces) == 0:
		within = other.Namespace == of.Namespace
	}
	return within && matches(t.LabelSelector, other.Labels)
}

func matches(s *metav1.LabelSelector, set labels.Set) bool {
	if s == nil {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(set)
}

// byNamespace reports whether a pod's terms ask for the labels of namespaces.
func byNamespace(p *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(affine(p), averse(p)), func(t corev1.PodAffinityTerm) bool {
		return t.NamespaceSelector != nil && len(t.NamespaceSelector.MatchLabels)+len(t.NamespaceSelector.MatchExpressions) > 0
	})
}

// alive reports whether a pod is where it is for good: it is bound, and not on
// its way out.
func alive(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && p.DeletionTimestamp.IsZero() && !podvolume.Finished(p)
}

func byName(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
