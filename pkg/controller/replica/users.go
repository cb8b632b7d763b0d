package replica

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/placement"
)

// use is who uses a volume, as far as Kubernetes knows.
type use struct {
	// claimed: a claim is bound to the volume, so pods are to be expected.
	claimed bool
	// pods that use it, ordered by name.
	pods []*corev1.Pod
	// group is the same for all volumes of a pod.
	group string
	// companions are the other volumes of those pods.
	companions []placement.Volume
	// siblings are those of the companions that are to have replicas too.
	siblings map[string]bool
	// topology is the label over which the pods are spread; "" if none.
	topology string
	// neighbors are what the other pods of the cluster make of each of the pods.
	neighbors []neighbors
}

// use finds the volume's PersistentVolume, the pods on its claim and their
// other volumes.
func (r *Reconciler) use(ctx context.Context, s *pass) (use, error) {
	out := use{group: s.name, siblings: map[string]bool{}}
	var err error
	if out.pods, out.claimed, err = r.podsOf(ctx, s.name); err != nil {
		return out, err
	}
	if len(out.pods) > 0 {
		out.group = out.pods[0].Namespace + "/" + out.pods[0].Name
	}
	for _, p := range out.pods {
		for _, c := range p.Spec.TopologySpreadConstraints {
			out.topology = cmp.Or(out.topology, c.TopologyKey)
		}
		if err := r.accompany(ctx, s.name, p, &out); err != nil {
			return out, err
		}
	}
	out.neighbors, err = r.neighborsOf(ctx, s, out.pods)
	return out, err
}

// podsOf are the pods that use a volume, ordered by name; claimed: a claim is bound to it.
func (r *Reconciler) podsOf(ctx context.Context, volume string) (all []*corev1.Pod, claimed bool, err error) {
	claims, err := r.users().Claims(ctx, volume)
	if err != nil {
		return nil, false, err
	}
	for _, claim := range claims {
		pods, err := r.users().Pods(ctx, claim)
		if err != nil {
			return nil, false, err
		}
		for i := range pods {
			all = append(all, &pods[i])
		}
	}
	slices.SortFunc(all, byName)
	return all, len(claims) > 0, nil
}

func (r *Reconciler) users() podvolume.Users {
	return podvolume.Users{Host: r.Host, Drivers: []string{r.Driver}}
}

// accompany adds the pod's other volumes.
func (r *Reconciler) accompany(ctx context.Context, volume string, pod *corev1.Pod, out *use) error {
	for _, claim := range podvolume.Claims(pod) {
		handles, err := r.users().Handles(ctx, claim)
		if err != nil {
			return err
		}
		for _, handle := range handles {
			if handle == volume || slices.ContainsFunc(out.companions, func(v placement.Volume) bool { return v.ID == handle }) {
				continue
			}
			other, err := r.observe(ctx, client.ObjectKey{Namespace: r.Namespace, Name: handle})
			if err != nil {
				return err
			}
			companion := placement.Volume{ID: handle}
			for _, a := range other.attachments {
				companion.Function = functionOf(a.Spec.FunctionTypeConfig)
				if a.DeletionTimestamp.IsZero() {
					companion.Copies = append(companion.Copies, placement.Copy{Node: a.Spec.DPUNodeName, Warmth: placement.StorageAttached})
				}
			}
			out.companions = append(out.companions, companion)
			out.siblings[handle] = other.wanted() > 0 && other.primary() != nil
		}
	}
	return nil
}

// fits says whether any of the pods could run on a node: by its selector, its
// required node affinity and its tolerations. What passes with the node's
// health is not asked here.
func (u use) fits(node *corev1.Node) (bool, string) {
	if node == nil {
		return false, "the node is gone"
	}
	why := ""
	for _, p := range u.pods {
		reason := unfit(p, node)
		if reason == "" {
			return true, ""
		}
		why = cmp.Or(why, fmt.Sprintf("pod %s/%s could not run there: %s", p.Namespace, p.Name, reason))
	}
	return why == "", why
}

func unfit(p *corev1.Pod, node *corev1.Node) string {
	switch match, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(node); {
	case err != nil:
		return fmt.Sprintf("its node affinity cannot be read: %v", err)
	case !match:
		return "its node selector or affinity does not match"
	}
	lasting := func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule && !passing[t.Key] }
	taint, found := schedulinghelpers.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, p.Spec.Tolerations, lasting, false)
	if found {
		return fmt.Sprintf("it does not tolerate the taint %s", taint.ToString())
	}
	return ""
}

// unsuited says why none of the pods could run on a node as others are placed
// now; "" if one could.
func (u use) unsuited(node *corev1.Node) string {
	why := ""
	for i, c := range u.neighbors {
		message := c.unsuited(node.Labels)
		if message == "" {
			return ""
		}
		why = cmp.Or(why, fmt.Sprintf("pod %s/%s could not run there now: %s", u.pods[i].Namespace, u.pods[i].Name, message))
	}
	return why
}

// shortOf is how many functions of a kind the siblings still need on a node.
func (u use) shortOf(node string, kind placement.Function) int {
	short := 0
	for _, v := range u.companions {
		has := slices.ContainsFunc(v.Copies, func(c placement.Copy) bool { return c.Node == node })
		if u.siblings[v.ID] && v.Function == kind && !has {
			short++
		}
	}
	return short
}
