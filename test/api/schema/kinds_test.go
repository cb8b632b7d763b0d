//go:build api

package schema

import (
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/test/kit"
)

// TestKindsAreServedAsKnown: real API servers with Moor's CRDs serve the kinds that programs know, without
// a question to an API server, as they know them. Each of these is served by one of the two at least.
func TestKindsAreServedAsKnown(t *testing.T) {
	away := &rest.Config{Host: "127.0.0.1:1", QPS: -1}
	c, err := rest.HTTPClientFor(away)
	if err != nil {
		t.Fatal(err)
	}
	knows, err := kube.NewMapper(away, c)
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := kit.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]bool{}
	for name, config := range map[string]*rest.Config{"host": clusters.HostConfig, "DPU": clusters.DPUConfig} {
		c, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		asks, err := apiutil.NewDynamicRESTMapper(config, c)
		if err != nil {
			t.Fatal(err)
		}
		for kind := range scheme.AllKnownTypes() {
			known, err := knows.RESTMapping(kind.GroupKind(), kind.Version)
			if err != nil {
				continue
			}
			got, err := asks.RESTMapping(kind.GroupKind(), kind.Version)
			if err == nil && *got != *known {
				t.Errorf("the %s cluster serves %s as %+v, known is %+v", name, kind, got, known)
			}
			served[kind.String()] = served[kind.String()] || err == nil
		}
	}
	for kind, is := range served {
		if !is {
			t.Errorf("%s is known, and served nowhere", kind)
		}
	}
	if len(served) < 20 {
		t.Errorf("%d kinds are known: %v", len(served), served)
	}
}
