package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
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

// TestPasswordsOfBMCs: only the release that asks for it can read Secrets, with its own account
// in its own namespace: who has the password of a BMC can switch its host off.
func TestPasswordsOfBMCs(t *testing.T) {
	component := "host: {snapHostController: {enabled: true, config: {targetNamespace: dpus, powerControls: %s}}}"
	for _, tt := range []struct {
		name, values, role, account string
	}{
		{name: "cluster", values: "{cluster: host, attachMode: Node, host: {snapHostController: {config: {powerControls: true}}}}", role: "Role/moor:snap-host-controller-bmc", account: "snap-host-controller"},
		{name: "not asked for", values: "{cluster: host, attachMode: Node}"},
		{name: "component", values: fmt.Sprintf(component, "true"), role: "Role/moor:r-snap-host-controller-controller-bmc", account: "r-snap-host-controller"},
		{name: "component, not asked for", values: fmt.Sprintf(component, "false")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := renderIn(rootOf(t), "storage", "r", values(t, tt.values), nil)
			if err != nil {
				t.Fatal(err)
			}
			var readers, bound []string
			for key, o := range objects(t, out) {
				text, err := json.Marshal(o["rules"])
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(text), `"secrets"`) && strings.Contains(key, "host-controller") {
					readers = append(readers, key)
				}
				subjects, _, _ := unstructured.NestedSlice(o, "subjects")
				if strings.HasPrefix(key, "RoleBinding/") && strings.HasSuffix(key, "-bmc") {
					bound = append(bound, key)
					want := []any{map[string]any{"kind": "ServiceAccount", "name": tt.account, "namespace": "storage"}}
					if !reflect.DeepEqual(subjects, want) {
						t.Errorf("%s is given to %v, want %v", key, subjects, want)
					}
				}
			}
			var want []string
			if tt.role != "" {
				want = []string{tt.role}
			}
			if !slices.Equal(readers, want) || len(bound) != len(want) {
				t.Errorf("%q may read Secrets, by %q; want %q", readers, bound, want)
			}
		})
	}
}
