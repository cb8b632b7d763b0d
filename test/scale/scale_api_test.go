//go:build api

package main

import (
	"os"
	"os/exec"
	"regexp"
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
	// Were each beat copied, it would be more than 20.
	"settled.copied_beats": 10,
}

// passesPerCopy is how often programs reconcile because of a copied beat, at most: in
// either cluster once.
const passesPerCopy = 2

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
	o := options{hosts: 200, volumes: 5, times: 1, lasting: 15 * time.Second, slow: 1, bin: bin, only: regexp.MustCompile("^" + settled + "$"), early: true, watchCaches: true}
	r := newRecord(o.prefix(), results.Invocation{})
	if err := measure(t.Context(), o, r); err != nil {
		t.Fatal(err)
	}
	bounded, values := 0, map[string]float64{}
	for _, s := range r.file.Summaries() {
		name := strings.TrimPrefix(s.Name, r.prefix)
		values[name] = s.Value
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
	// A beat of this machine may be late, when its host is looked at: one a second.
	copies, passes := values["settled.copied_beats"], values["settled.passes"]
	if most := passesPerCopy*copies + 1; copies == 0 || passes > most {
		t.Errorf("%g passes a second with %g copied beats; at most %g are allowed", passes, copies, most)
	}
	if bounded < 2*5+3 { // reads and writes of five starts and at rest, and the copies
		t.Errorf("only %d results are bounded", bounded)
	}
}
