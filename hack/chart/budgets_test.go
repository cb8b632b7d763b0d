package main

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// TestBudgetsAreOfDeployments: a PodDisruptionBudget selects the pods of the Deployment of its
// name and no others, also where a release has the CSI driver of the hosts beside its controller:
// Kubernetes lets no pod go by a budget that selects pods of a DaemonSet.
func TestBudgetsAreOfDeployments(t *testing.T) {
	root := rootOf(t)
	cases, err := valuesOf(root)
	if err != nil {
		t.Fatal(err)
	}
	cases["both"] = values(t, "{host: {snapCsiPlugin: {enabled: true, controller: {enabled: true, replicas: 3}, node: {enabled: true}}}}")
	budgets := 0
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		out, err := render(root, "r", cases[name], nil)
		if err != nil {
			t.Fatal(err)
		}
		all := objects(t, out)
		for _, budget := range all {
			if budget["kind"] != "PodDisruptionBudget" {
				continue
			}
			budgets++
			of := "Deployment/" + (&unstructured.Unstructured{Object: budget}).GetName()
			if got := selected(t, budget, all); !slices.Equal(got, []string{of}) {
				t.Errorf("%s: a budget selects pods of %v, want %s", name, got, of)
			}
		}
	}
	if budgets < len(cases)/3 {
		t.Errorf("%d budgets in %d cases: the search is wrong", budgets, len(cases))
	}
}

// selected are the workloads whose pods a budget selects.
func selected(t *testing.T, budget map[string]any, all map[string]map[string]any) []string {
	t.Helper()
	by, _, err := unstructured.NestedStringMap(budget, "spec", "selector", "matchLabels")
	if err != nil || len(by) == 0 {
		t.Fatalf("%v: %v", by, err)
	}
	var out []string
	for key, o := range all {
		pods, found, err := unstructured.NestedStringMap(o, "spec", "template", "metadata", "labels")
		if err != nil {
			t.Fatal(err)
		}
		if found && labels.SelectorFromSet(by).Matches(labels.Set(pods)) {
			out = append(out, key)
		}
	}
	return out
}
