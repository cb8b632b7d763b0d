package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestCredentialsOffHostsWithDPU: what has credentials of the DPU cluster in the host cluster can
// give a volume to another host. No such pod may run on a host that has a DPU.
func TestCredentialsOffHostsWithDPU(t *testing.T) {
	root := rootOf(t)
	cases, err := valuesOf(root)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		unstructured.RemoveNestedField(cases[name], "host", "snapHostController", "affinity") // it would be the installer's word
		out, err := render(root, "r", cases[name], nil)
		if err != nil {
			t.Fatal(err)
		}
		for key, o := range objects(t, out) {
			text, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(key, "Deployment/") || !strings.Contains(string(text), "dpu-cluster") {
				continue
			}
			found[name] = true
			wants := []string{`{"key":"storage.moor.dev/dpu","operator":"DoesNotExist"}`}
			if strings.HasPrefix(name, "dpf-") {
				wants = append(wants, `{"key":"feature.node.kubernetes.io/dpu-enabled","operator":"DoesNotExist"}`)
			}
			_, required, _ := strings.Cut(string(text), `"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[`)
			required, _, _ = strings.Cut(required, "]}]}")
			for _, want := range wants {
				if !strings.Contains(required, want) {
					t.Errorf("%s: %s may run on a host with a DPU: %q lacks %s", name, key, required, want)
				}
			}
		}
	}
	if !found["dpf-snap-controller"] || !found["dpf-host-controller"] || !found["host"] {
		t.Errorf("the search found %v", found)
	}
}
