package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// user is how a policy names an account.
var user = regexp.MustCompile(`system:serviceaccount:([a-z0-9-]+):([a-z0-9-]+)`)

// spoken are the values of ci that name the namespace themselves.
var spoken = []string{"dpf-host-controller"}

// TestAnotherNamespace: nothing of a release is in, or speaks of, the namespace of the
// manifests, and each program that has objects in a namespace is told which.
func TestAnotherNamespace(t *testing.T) {
	root := rootOf(t)
	cases, err := valuesOf(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range cases {
		out, err := renderIn(root, "storage", "r", values, nil)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out, namespace) && !slices.Contains(spoken, name) {
			t.Errorf("%s: something is of namespace %s", name, namespace)
		}
		for key, o := range objects(t, out) {
			text, _ := yaml.Marshal(o)
			if !strings.HasPrefix(key, "Deployment/") && !strings.HasPrefix(key, "DaemonSet/") || strings.Contains(string(text), "- storage-vendor-dpu-plugin\n") {
				continue // a plugin has no objects
			}
			if !strings.Contains(string(text), "- --namespace=") {
				t.Errorf("%s: %s is not told its namespace", name, key)
			}
		}
	}
}

// TestPoliciesBindTheAccounts: in every release the account of a DaemonSet that has rights is
// the one that the release's policies bind, and they bind no other: under another name a host
// could write as any other one.
func TestPoliciesBindTheAccounts(t *testing.T) {
	root := rootOf(t)
	cases, err := valuesOf(root)
	if err != nil {
		t.Fatal(err)
	}
	bound := 0
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		out, err := render(root, "other", cases[name], nil)
		if err != nil {
			t.Fatal(err)
		}
		policed, have, daemons := map[string]int{}, map[string]bool{}, map[string]bool{}
		for _, o := range objects(t, out) {
			object := unstructured.Unstructured{Object: o}
			switch object.GetKind() {
			case "ServiceAccount":
				have[object.GetName()] = true
			case "DaemonSet":
				if account, _, _ := unstructured.NestedString(o, "spec", "template", "spec", "serviceAccountName"); account != "" {
					daemons[account] = true
				}
			case "ValidatingAdmissionPolicy":
				text, _ := yaml.Marshal(o)
				for _, m := range user.FindAllStringSubmatch(string(text), -1) {
					policed[m[2]]++
					if m[1] != namespace {
						t.Errorf("%s: policy %s is of namespace %s", name, object.GetName(), m[1])
					}
				}
			}
		}
		for account := range daemons {
			bound++
			if policed[account] < 2 || !have[account] {
				t.Errorf("%s: %d policies bind account %s, which is there: %v", name, policed[account], account, have[account])
			}
		}
		for account := range policed {
			if !have[account] && name != "dpf-configuration" {
				t.Errorf("%s: a policy binds account %s, which the release does not have", name, account)
			}
		}
	}
	if bound < 6 {
		t.Errorf("%d DaemonSets have an account: the search is wrong", bound)
	}
}
