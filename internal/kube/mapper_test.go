package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// asked counts what is asked of a mapper.
type asked struct {
	meta.RESTMapper
	n int
}

func (a *asked) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	a.n++
	return a.RESTMapper.RESTMapping(kind, versions...)
}

// TestMapperRemembers: what is served is asked for once, what is not yet, again.
func TestMapperRemembers(t *testing.T) {
	v1, v2 := schema.GroupVersion{Group: "g", Version: "v1"}, schema.GroupVersion{Group: "g", Version: "v2"}
	served := meta.NewDefaultRESTMapper(nil)
	behind := &asked{RESTMapper: served}
	m := &mapper{RESTMapper: behind}
	kind := schema.GroupKind{Group: "g", Kind: "Thing"}
	for i := range 2 {
		if _, err := m.RESTMapping(kind, "v1"); !meta.IsNoMatchError(err) || behind.n != i+1 {
			t.Fatalf("a kind that is not served: %v, asked %d times", err, behind.n)
		}
	}
	served.Add(v1.WithKind("Thing"), meta.RESTScopeNamespace)
	served.Add(v2.WithKind("Thing"), meta.RESTScopeNamespace)
	behind.n = 0
	for range 3 {
		for _, version := range []string{"v1", "v2"} {
			got, err := m.RESTMapping(kind, version)
			if err != nil || got.GroupVersionKind.Version != version || got.Scope.Name() != meta.RESTScopeNameNamespace {
				t.Fatalf("%s: %+v, %v", version, got, err)
			}
		}
	}
	if behind.n != 2 {
		t.Errorf("asked %d times, want once for each version", behind.n)
	}
}
