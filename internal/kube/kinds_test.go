package kube

import (
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// crds are those of both clusters.
func crds(t *testing.T) []apiextensionsv1.CustomResourceDefinitionSpec {
	t.Helper()
	var out []apiextensionsv1.CustomResourceDefinitionSpec
	for _, cluster := range []string{"host", "dpu"} {
		files, err := filepath.Glob("../../crds/" + cluster + "/*.yaml")
		if err != nil || len(files) == 0 {
			t.Fatalf("%v, %v", files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var crd apiextensionsv1.CustomResourceDefinition
			if err := yaml.UnmarshalStrict(text, &crd); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			out = append(out, crd.Spec)
		}
	}
	return out
}

// TestNeededKinds: Moor's kinds are served as is known without a question, and each of them is
// known unless programs do without it; whether one is served is asked. No API server answers here.
func TestNeededKinds(t *testing.T) {
	cfg := &rest.Config{Host: "127.0.0.1:1"}
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	mapper, err := NewMapper(cfg, c)
	if err != nil {
		t.Fatal(err)
	}
	scopes := map[apiextensionsv1.ResourceScope]meta.RESTScope{apiextensionsv1.ClusterScoped: meta.RESTScopeRoot, apiextensionsv1.NamespaceScoped: meta.RESTScopeNamespace}
	optional := map[string]bool{"DPUVolumeSnapshot": true, "StorageSnapshot": true}
	for _, crd := range crds(t) {
		t.Run(crd.Names.Kind, func(t *testing.T) {
			for _, v := range crd.Versions {
				if served, err := Serves(mapper, schema.GroupVersionKind{Group: crd.Group, Version: v.Name, Kind: crd.Names.Kind}); err == nil {
					t.Errorf("said to be served, or not: %t", served)
				}
				got, err := mapper.RESTMapping(schema.GroupKind{Group: crd.Group, Kind: crd.Names.Kind}, v.Name)
				if optional[crd.Names.Kind] {
					if err == nil || meta.IsNoMatchError(err) {
						t.Errorf("%v, %v: it is asked for, of an API server that does not answer", got, err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				want := meta.RESTMapping{
					Resource:         schema.GroupVersionResource{Group: crd.Group, Version: v.Name, Resource: crd.Names.Plural},
					GroupVersionKind: schema.GroupVersionKind{Group: crd.Group, Version: v.Name, Kind: crd.Names.Kind},
					Scope:            scopes[crd.Scope],
				}
				if *got != want {
					t.Errorf("got %+v, want %+v", *got, want)
				}
			}
		})
	}
}
