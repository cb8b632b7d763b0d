//go:build api

package schema

import (
	"os"
	"os/exec"
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

// built is what kubectl makes of a directory with a kustomization, in a file.
func built(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), "kustomize", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl kustomize %s: %v: %s", dir, err, out)
	}
	file := filepath.Join(t.TempDir(), "built.yaml")
	if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestChart: an API server takes what the Helm chart renders, and the examples for DPF. It
// knows more than the types do: names, selectors, and whether the CEL of a policy compiles.
func TestChart(t *testing.T) {
	root, err := devcluster.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"test/docs/testdata/chart/*.yaml", "deploy/kustomize/*/kustomization.yaml", "deploy/examples/dpf/scenarios/*.yaml", "deploy/examples/dpf/vendor-*.yaml"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		for _, file := range found {
			name, _ := filepath.Rel(root, file)
			t.Run(name, func(t *testing.T) {
				manifest := file
				if filepath.Base(file) == "kustomization.yaml" {
					manifest = built(t, filepath.Dir(file))
				}
				objects, err := kit.ReadManifests(manifest)
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
