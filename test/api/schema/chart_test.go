//go:build api

package schema

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/kit"
)

// inDPUCluster are the renderings of the chart that are for the DPU cluster.
var inDPUCluster = []string{"dpu.yaml", "dpu-vendors.yaml", "dpf-configuration.yaml", "dpf-node-driver.yaml", "dpf-block-plugin.yaml", "dpf-fs-plugin.yaml"}

// notServed are groups whose CRDs are not Moor's.
func notServed(o *unstructured.Unstructured) bool {
	return strings.HasSuffix(o.GroupVersionKind().Group, "snapshot.storage.k8s.io") || o.GroupVersionKind().Group == "svc.dpu.nvidia.com"
}

// TestChart: an API server takes what the Helm chart renders, and the examples for DPF. It
// knows more than the types do: names, selectors, and whether the CEL of a policy compiles.
func TestChart(t *testing.T) {
	root, err := devcluster.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"test/docs/testdata/chart/*.yaml", "deploy/kustomize/*/moor.yaml", "deploy/examples/dpf/scenarios/*.yaml", "deploy/examples/dpf/vendor-*.yaml"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		for _, file := range found {
			name, _ := filepath.Rel(root, file)
			t.Run(name, func(t *testing.T) {
				objects, err := kit.ReadManifests(file)
				if err != nil {
					t.Fatal(err)
				}
				objects = slices.DeleteFunc(objects, notServed)
				if len(objects) == 0 {
					t.Fatal("there is nothing to apply")
				}
				var c client.Client = clusters.Host
				if slices.Contains(inDPUCluster, filepath.Base(file)) || strings.Contains(name, "kustomize/dpu/") {
					c = clusters.DPU
				}
				if err := kit.ApplyObjects(t.Context(), client.NewDryRunClient(c), objects); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
