//go:build api

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/moor-storage/moor/test/bench/results"
)

// bounds are the most that may be counted in a world of so few hosts; what has a
// star before it bounds every result that ends so. Times are not bounded: they are
// of the machine.
var bounds = map[string]float64{
	"*.writes": 0,
	"*.reads":  0,
	// The mirrors of 200 hosts, one a minute each, and Moor's own two Leases a second.
	"settled.copied_beats": 8,
	// Two for each of those mirrors, and for nothing else; but a beat of this machine
	// may be late, when its host is looked at.
	"settled.passes": 10,
}

// TestSettled starts the real programs on a settled world: they find out that there
// is nothing to do without asking for single objects, and nothing wakes them later.
func TestSettled(t *testing.T) {
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin, "../../cmd/snap-host-controller", "../../cmd/snap-controller", "../../cmd/snap-csi-plugin", "../../cmd/snap-external-attacher", "../../cmd/scheduler-extender")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	ctrl.SetLogger(logr.Discard())
	const hosts = 200
	r := newRecord(hosts, results.Invocation{})
	if err := measure(t.Context(), options{hosts: hosts, volumes: 5, lasting: 15 * time.Second, slow: 1, bin: bin, settledOnly: true}, r); err != nil {
		t.Fatal(err)
	}
	bounded := 0
	for _, s := range r.file.Summaries() {
		name := strings.TrimPrefix(s.Name, r.prefix)
		if s.Failed > 0 && name != "settled.beats" { // how fast this machine is
			t.Errorf("%s: %v", name, r.series(result{name: name}).Samples)
		}
		for bound, most := range bounds {
			end, star := strings.CutPrefix(bound, "*")
			if name != bound && !(star && strings.HasSuffix(name, end)) {
				continue
			}
			bounded++
			if s.Value > most {
				t.Errorf("%s is %g, at most %g is allowed", name, s.Value, most)
			}
		}
	}
	if bounded < 2*5+4 { // reads and writes of five starts and at rest, the copies and the passes
		t.Errorf("only %d results are bounded", bounded)
	}
}
