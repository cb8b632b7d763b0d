package docs

import (
	"maps"
	"path/filepath"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestChart decodes what the values of deploy/charts/moor/ci render (make generate), and
// checks what each object refers to, as of the manifests: flags are those of the programs.
func TestChart(t *testing.T) {
	found, err := filepath.Glob(path("deploy", "charts", "moor", "ci", "*.yaml"))
	if err != nil || len(found) < 10 {
		t.Fatalf("%d sets of values, %v", len(found), err)
	}
	for _, values := range found {
		t.Run(filepath.Base(values), func(t *testing.T) {
			file := path("test", "docs", "testdata", "chart", filepath.Base(values))
			objects := decode(t, file, read(t, file))
			if len(objects) == 0 {
				t.Fatal("nothing is rendered")
			}
			have := names(map[string][]client.Object{file: objects})
			maps.Copy(have, credentials)
			for _, o := range objects {
				checkObject(t, have, o)
			}
		})
	}
}

// credentials are the accounts that a DPUServiceCredentialRequest makes.
var credentials = map[string]bool{
	"ServiceAccount/snap-host-controller-sa": true, "ServiceAccount/snap-controller-sa": true, "ServiceAccount/snap-external-attacher-sa": true,
}

// TestKustomize: what is applied without Helm decodes too.
func TestKustomize(t *testing.T) {
	found, err := filepath.Glob(path("deploy", "kustomize", "*", "moor.yaml"))
	if err != nil || len(found) < 3 {
		t.Fatalf("%d directories, %v", len(found), err)
	}
	for _, file := range found {
		objects := decode(t, file, read(t, file))
		have := names(map[string][]client.Object{file: objects})
		for _, o := range objects {
			checkObject(t, have, o)
		}
	}
}
