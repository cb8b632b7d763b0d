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

// The floors, from the ground up.
const (
	words      = iota // types and generated code only
	tools             // no decision of ours
	ideas             // what a platform can do; no I/O
	mechanisms        // how each platform does it
	actors            // decide and act
	wiring            // flags, config, clients, run
	bed               // the test bed and the tests on it
)

// rooms places every package on a floor; the longest prefix counts. A room is
// a prefix: packages inside one room may import one another.
var rooms = map[string]int{
	"api/storage/v1alpha1": words, "api/moor/v1alpha1": words, "api/plugin/v1": words,
	"internal/kube": tools, "internal/obs": tools, "internal/keylock": tools, "internal/snaprpc": tools,
	"internal/hostdev": tools, "internal/version": tools, "internal/archtest": tools,
	"internal/mediumlog": tools, "internal/blocktarget": tools, "internal/liveness": tools,
	"internal/podvolume": tools, "internal/unixsocket": tools, "internal/watchdog": tools,
	"pkg/provisioner":     ideas,
	"pkg/placement":       ideas,
	"pkg/provisioner/dpf": mechanisms, "pkg/provisioner/snap": mechanisms, "pkg/provisioner/local": mechanisms,
	"pkg/provisioner/metered": mechanisms, "pkg/provisioner/provisionertest": mechanisms, "pkg/provisioner/remote": mechanisms,
	"internal/csiserver": mechanisms, "internal/vendorplugin": mechanisms, "internal/snapemu": mechanisms,
	"pkg/controller/csi": actors, "pkg/controller/hostsync": actors, "pkg/controller/fence": actors, "pkg/controller/replica": actors,
	"pkg/controller/dpucluster": actors, "pkg/controller/attacher": actors, "pkg/controller/drivernode": actors, "pkg/controller/wake": actors,
	"pkg/node/csi": actors, "pkg/node/dpu": actors, "pkg/node/heartbeat": actors, "pkg/node/liveness": actors, "pkg/node/registrar": actors,
	"pkg/node/plugins": actors, "pkg/node/guest": actors, "pkg/node/lease": actors,
	"pkg/scheduler": actors, "internal/csictl": actors,
	"cmd":             wiring,
	"hack/kube/pause": wiring,
	"test":            bed,
}

// sideways are the arrows within a floor that are allowed, with the reason.
var sideways = map[string]string{
	"internal/vendorplugin > pkg/provisioner/provisionertest": "its tests hold the server to the contract suite",
	"cmd > test": "moor-dev is the command of the test bed",
}

type pkg struct {
	ImportPath string
	Imports    []string
}

func TestImportsGoDown(t *testing.T) {
	for _, p := range list(t) {
		from, floor, ok := room(p.ImportPath)
		if !ok {
			t.Errorf("%s has no room: add it to the table of rooms", p.ImportPath)
			continue
		}
		for _, i := range p.Imports {
			to, lower, ok := room(i)
			if !ok || from == to || lower < floor || sideways[from+" > "+to] != "" {
				continue
			}
			t.Errorf("%s (%s) imports %s (%s): an import goes down, never up or sideways", p.ImportPath, from, i, to)
		}
	}
}

// room is the longest prefix of the table that holds the package.
func room(path string) (name string, floor int, ok bool) {
	rest, ours := strings.CutPrefix(path, module)
	if !ours {
		return "", 0, false
	}
	for prefix, f := range rooms {
		if (rest == prefix || strings.HasPrefix(rest, prefix+"/")) && len(prefix) > len(name) {
			name, floor, ok = prefix, f, true
		}
	}
	return name, floor, ok
}

func list(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", module+"...").Output()
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
