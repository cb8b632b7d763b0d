package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/moor-storage/moor/"

// The layers, from the bottom up.
const (
	api        = iota // types and generated code only
	tools             // no decision of Moor's
	core              // what a platform can do, and pure decisions; no I/O
	mechanisms        // how each platform does it
	actors            // decide and act
	programs          // flags, config, clients, run
	reference         // the emulated SNAP service and the reference vendor
	tests             // the test bed and the tests on it
)

// layers places every package in a layer; the longest prefix counts. Packages
// under the same prefix may import one another.
var layers = map[string]int{
	"api/storage/v1alpha1": api, "api/moor/v1alpha1": api, "api/pav/v1alpha1": api, "api/plugin/v1": api, "api/epoch/v1": api,
	"internal/kube": tools, "internal/daemon": tools, "internal/keylock": tools, "internal/snaprpc": tools,
	"internal/hostdev": tools, "internal/archtest": tools, "internal/freeport": tools, "internal/listen": tools, "internal/podvolume": tools, "internal/index": tools, "internal/jinja": tools,
	"internal/filestore": tools, "internal/unixsocket": tools, "internal/watchdog": tools, "internal/kube/kubetest": tools, "internal/kube/served": tools, "internal/kubelet": tools,
	"pkg/provisioner": core, "pkg/placement": core, "pkg/writer": core, "pkg/power": core,
	"pkg/provisioner/dpf": mechanisms, "pkg/provisioner/snap": mechanisms, "pkg/provisioner/remote": mechanisms, "pkg/provisioner/pods": mechanisms,
	"pkg/provisioner/metered": mechanisms, "pkg/provisioner/provisionertest": mechanisms,
	"pkg/csiserver": mechanisms, "pkg/power/redfish": mechanisms, "pkg/vendorplugin": mechanisms, "pkg/nodehealth": mechanisms,
	"pkg/controller/csi": actors, "pkg/controller/hostcluster": actors, "pkg/controller/failover": actors,
	"pkg/controller/replica": actors, "pkg/controller/dpucluster": actors, "pkg/controller/attacher": actors,
	"pkg/controller/deadmount": actors, "pkg/controller/dpupairing": actors, "pkg/controller/dpudrain": actors, "pkg/controller/nodelifecycle": actors, "pkg/controller/podresync": actors, "pkg/controller/pods": actors,
	"pkg/node/csi": actors, "pkg/node/dpu": actors, "pkg/node/heartbeat": actors, "pkg/node/hostprobe": actors,
	"pkg/node/registrar": actors, "pkg/node/plugins": actors, "pkg/node/zerotrust": actors, "pkg/node/selffence": actors,
	"pkg/node/pods":   actors,
	"pkg/scheduler":   actors,
	"cmd":             programs,
	"hack/kube/pause": programs,
	"hack/image":      programs,
	"examples":        programs,
	"reference":       reference,
	"test":            tests,
}

// sideways are the imports within a layer that are allowed, with the reason.
var sideways = map[string]string{
	"pkg/writer > pkg/provisioner":                "which access modes make a single writer",
	"pkg/writer > pkg/power":                      "what is read of the power of a machine",
	"internal/podvolume > internal/kube":          "it looks in a kube.Cluster, by kube.Index",
	"internal/index > internal/kube":              "it lists values of kube.Index",
	"internal/index > internal/podvolume":         "it lists the indexes by which podvolume looks",
	"internal/kube/kubetest > internal/kube":      "it is each cluster as a kube.Cluster",
	"internal/kube/kubetest > internal/index":     "its clusters have the indexes of the real caches",
	"internal/kube/kubetest > internal/podvolume": "its clusters cut objects as the real caches do",
}

type pkg struct {
	ImportPath string
	Doc        string
	Imports    []string
}

func TestImportsGoDown(t *testing.T) {
	needed := map[string]bool{}
	for _, p := range list(t) {
		from, layer, ok := layerOf(p.ImportPath)
		if !ok {
			t.Errorf("%s has no layer: add it to the table of layers", p.ImportPath)
			continue
		}
		for _, i := range p.Imports {
			to, lower, ok := layerOf(i)
			if !ok || from == to || lower < layer {
				continue
			}
			hop := from + " > " + to
			needed[hop] = true
			if lower == layer && sideways[hop] != "" {
				continue
			}
			t.Errorf("%s (%s) imports %s (%s): an import goes down, never up or sideways", p.ImportPath, from, i, to)
		}
	}
	for allowed := range sideways {
		if !needed[allowed] {
			t.Errorf("%s: no package needs this import any more: take it off the list", allowed)
		}
	}
}

// layerOf is the longest prefix of the table that holds the package, and its layer.
func layerOf(path string) (name string, layer int, ok bool) {
	rest, ours := strings.CutPrefix(path, module)
	if !ours {
		return "", 0, false
	}
	for prefix, l := range layers {
		if (rest == prefix || strings.HasPrefix(rest, prefix+"/")) && len(prefix) > len(name) {
			name, layer, ok = prefix, l, true
		}
	}
	return name, layer, ok
}

func list(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Doc,Imports", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("read go list: %v", err)
		}
		all = append(all, p)
	}
}
