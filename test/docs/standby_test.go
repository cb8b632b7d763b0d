package docs

import (
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// standing are the Deployments of which a second replica goes on when the first dies with
// its node.
var standing = []string{"pod-provisioner-controller", "snap-controller", "snap-csi-plugin-controller", "snap-host-controller"}

// TestAStandbyGoesOn: each of these has two replicas on different nodes, of which one works;
// it leaves a dead node within ten seconds, a drain takes one at a time, and pods of users do
// not take its place.
func TestAStandbyGoesOn(t *testing.T) {
	found := map[string]bool{}
	for _, cluster := range []string{"host", "dpu", "pav"} {
		for _, objects := range manifests(t, cluster) {
			for _, o := range objects {
				d, ok := o.(*appsv1.Deployment)
				if !ok || !slices.Contains(standing, d.Name) {
					continue
				}
				found[d.Name] = true
				i := slices.IndexFunc(objects, func(o client.Object) bool { b, ok := o.(*policyv1.PodDisruptionBudget); return ok && b.Name == d.Name })
				if i < 0 {
					t.Errorf("%s has no PodDisruptionBudget", d.Name)
					continue
				}
				checkStandby(t, d, objects[i].(*policyv1.PodDisruptionBudget))
			}
		}
	}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, standing) {
		t.Errorf("found %v, want %v", got, standing)
	}
}

func checkStandby(t *testing.T, d *appsv1.Deployment, budget *policyv1.PodDisruptionBudget) {
	t.Helper()
	pod := d.Spec.Template.Spec
	if *d.Spec.Replicas != 2 || d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType || pod.PriorityClassName != "system-cluster-critical" {
		t.Errorf("%s: %d replicas, strategy %q, priority %q", d.Name, *d.Spec.Replicas, d.Spec.Strategy.Type, pod.PriorityClassName)
	}
	if !slices.Contains(pod.Containers[0].Args, "--leader-elect") {
		t.Errorf("%s takes no lease", d.Name)
	}
	if budget.Spec.MaxUnavailable.IntValue() != 1 || !selects(budget.Spec.Selector.MatchLabels, d) {
		t.Errorf("%s: a drain takes %v of %v", d.Name, budget.Spec.MaxUnavailable, budget.Spec.Selector)
	}
	if a := pod.Affinity; a == nil || a.PodAntiAffinity == nil || !slices.ContainsFunc(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, func(term corev1.WeightedPodAffinityTerm) bool {
		return term.PodAffinityTerm.TopologyKey == corev1.LabelHostname && selects(term.PodAffinityTerm.LabelSelector.MatchLabels, d)
	}) {
		t.Errorf("%s: both may be on one node", d.Name)
	}
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if !slices.ContainsFunc(pod.Tolerations, func(to corev1.Toleration) bool {
			return to.Key == taint && to.Effect == corev1.TaintEffectNoExecute && to.TolerationSeconds != nil && *to.TolerationSeconds == 10
		}) {
			t.Errorf("%s does not leave a node with the taint %s within 10 s", d.Name, taint)
		}
	}
}

// selects reports whether the labels are some of those of the pods of d.
func selects(labels map[string]string, d *appsv1.Deployment) bool {
	for key, value := range labels {
		if d.Spec.Template.Labels[key] != value {
			return false
		}
	}
	return len(labels) > 0
}
