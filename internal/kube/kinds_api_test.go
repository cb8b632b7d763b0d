//go:build api

package kube_test

import (
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/test/api/apiserver"
)

// TestNeededKindsAreServed: real API servers with Moor's CRDs serve needed kinds as is known. Each
// kind is served by one of them at least.
func TestNeededKindsAreServed(t *testing.T) {
	served := map[string]int{}
	for _, cluster := range []string{apiserver.Host, apiserver.DPU} {
		config, err := clientcmd.RESTConfigFromKubeConfig(apiserver.StartOne(t, cluster).AdminKubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		c, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		asked, err := apiutil.NewDynamicRESTMapper(config, c)
		if err != nil {
			t.Fatal(err)
		}
		known, err := kube.NewMapper(config, c)
		if err != nil {
			t.Fatal(err)
		}
		for kind := range kube.NeededKinds() {
			want, err := asked.RESTMapping(kind.GroupKind(), kind.Version)
			if err != nil {
				t.Logf("%s cluster: %v", cluster, err)
				continue
			}
			served[kind.String()]++
			got, err := known.RESTMapping(kind.GroupKind(), kind.Version)
			if err != nil || *got != *want {
				t.Errorf("%s cluster: %s is %+v, %v, and known is %+v", cluster, kind, want, err, got)
			}
		}
	}
	for kind := range kube.NeededKinds() {
		if served[kind.String()] == 0 {
			t.Errorf("%s is served nowhere", kind)
		}
	}
}
