package results

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// valued is a summary of so many samples, all of one value.
func valued(name string, value float64) Summary {
	return Summary{Name: name, Kind: Median, Unit: Millis, Runs: 200, P99: value, Value: value, samples: slicesOf(value, 200)}
}

func slicesOf(value float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = value
	}
	return out
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		name  string
		value float64
		want  string
	}{
		{"attach.single", 600, "ok"},
		{"attach.single", 600.01, "MISSED"},
		{"attach.parallel50", 99_999, ""},
		{"attach.parallel50.all", 5_001, "MISSED"},
		{"failover.volumes20", 8_001, "ok"},
		{"failover.volumes20.node", 8_001, "MISSED"},
		{"hotplug.attach", 1_000.5, "MISSED"},
		{"hotplug.parallel31", 30_000, "ok"},
		{"snapshot.1gib", 1_001, "MISSED"},
		{"clone.1gib", 2_000, "ok"},
		{"expand.pod.node", 10_001, "MISSED"},
		{"list.volumes1000", 201, "MISSED"},
		{"list.volumes50", 201, ""},
		{"pod.new_volume", 9_000, "ok"},
		{"pod.new_volume.node", 9_001, "MISSED"},
		{"rss.snap-controller", 80.5, "MISSED"},
		{"rss.attached.snap-controller", 80.5, "MISSED"},
		{"rss.snap-emulator-dpu", 12, "ok"},
		{"rss", 99, ""},
		{"provision", 1, ""},
		{"failover.host_off.statefulset.node", 4_001, "MISSED"},
		{"failover.host_off.statefulset.controller", 10_000, "ok"},
		{"failover.host_and_dpu_off.node", 20_001, "MISSED"},
		{"failover.fence", 300, "ok"},
		{"failover.promote.node", 301, "MISSED"},
		{"failover.promote.request", 301, ""},
		{"safety.violations.node", 0, "ok"},
		{"safety.lost_writes", 1, "MISSED"},
		{"extender.prioritize.1000.50000.8", 100.1, "MISSED"},
		{"extender.http.5000", 21, "MISSED"},
		{"extender.http.5000.rate", 199, "MISSED"},
		{"extender.replica_node_chosen", 100, "ok"},
	} {
		if got := KnownMisses(nil).Verdict(valued(c.name, c.value)); got != c.want {
			t.Errorf("%s of %v is %q, want %q", c.name, c.value, got, c.want)
		}
	}
}

func TestVerdictOfFewOrFailedRuns(t *testing.T) {
	of := func(s Summary, samples ...float64) Summary {
		s.samples, s.Runs = samples, len(samples)
		return s
	}
	for _, c := range []struct {
		name string
		s    Summary
		want string
	}{
		{"nothing was measured", Summary{Name: "attach.single"}, "NO RUNS"},
		{"all runs failed", Summary{Name: "attach.single", Failed: 30}, "NO RUNS, 30 of 30 runs FAILED"},
		{"nothing without a target", Summary{Name: "provision"}, "NO RUNS"},
		{"one failed", Summary{Name: "failover.volumes20", Kind: Worst, Value: 1, Runs: 2, Failed: 1}, "ok, 1 of 3 runs FAILED"},
		{"one failed, no target", Summary{Name: "provision", Runs: 2, Failed: 1}, "1 of 3 runs FAILED"},
		{"half of the runs are inside", of(Summary{Name: "attach.single", Kind: Median, Value: 599}, 1, 2, 599, 700, 800), "ok within noise: 3 of 5 runs are inside"},
		{"missed by a hair", of(Summary{Name: "attach.single", Kind: Median, Value: 601}, 1, 2, 601, 700, 800), "MISSED within noise: 2 of 5 runs are inside"},
		{"all of five are inside", of(Summary{Name: "attach.single", Kind: Median, Value: 3}, 1, 2, 3, 4, 5), "ok"},
		{"too few to say", of(Summary{Name: "attach.single", Kind: Median, Value: 2}, 1, 2, 3), "ok within noise: 3 of 3 runs are inside"},
		{"a percentile of few", of(Summary{Name: "failover.fence", Kind: Median, Value: 1, P99: 5}, 1, 1, 5), "ok (p99: the slowest of 3)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := KnownMisses(nil).Verdict(c.s); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	if got := TargetOf("failover.host_off.deployment.node").String(); got != "<= 4000, p99 <= 7000" {
		t.Errorf("the target is %q", got)
	}
}

// TestProblems: what turns make bench red.
func TestProblems(t *testing.T) {
	known := KnownMisses{"attach.single": "a slow machine"}
	for _, c := range []struct {
		name string
		s    Summary
		want string
	}{
		{"good", valued("clone.1gib", 1), ""},
		{"no target", valued("provision", 1e9), ""},
		{"a known miss", valued("attach.single", 700), ""},
		{"a missed target", valued("clone.1gib", 1e9), "missed the target <= 2000"},
		{"a missed percentile", Summary{Name: "failover.fence", Runs: 3, P99: 301}, "missed the target p99 <= 300"},
		{"a breach of safety", valued(SafetyViolations+"."+ModeNode, 1), "missed the target <= 0"},
		{"a lost write", valued(SafetyLost+"."+ModeController, 1), "missed the target <= 0"},
		{"no runs", Summary{Name: "provision"}, "no run succeeded"},
		{"no runs of a known miss", Summary{Name: "attach.single"}, "no run succeeded"},
		{"a failed run", Summary{Name: "provision", Runs: 29, Failed: 1}, "1 of 30 runs failed"},
		{"a failed run of a known miss", Summary{Name: "attach.single", Value: 700, Runs: 29, Failed: 1}, "1 of 30 runs failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := known.Problems([]Summary{c.s})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if met := known.Met([]Summary{valued("attach.single", 1)}); len(met) != 1 {
		t.Errorf("a known miss that is met is not told of: %v", met)
	}
	if met := known.Met([]Summary{valued("attach.single", 700), {Name: "attach.single"}}); len(met) != 0 {
		t.Errorf("told of as met: %v", met)
	}
}

func TestLoadKnownMisses(t *testing.T) {
	for _, c := range []struct {
		name, text string
		good       bool
	}{
		{"none", `{}`, true},
		{"one", `{"failover.drain.ratio.node": "why"}`, true},
		{"no reason", `{"failover.drain.ratio": ""}`, false},
		{"no such target", `{"failover.drain.ration": "why"}`, false},
		{"safety", `{"safety.violations.node": "why"}`, false},
		{"no object", `["failover.drain.ratio"]`, false},
	} {
		path := filepath.Join(t.TempDir(), "known.json")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKnownMisses(path); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := LoadKnownMisses(filepath.Join(t.TempDir(), "none.json")); err == nil {
		t.Error("a file that is not there is no error")
	}
}

func TestSignTest(t *testing.T) {
	for _, c := range []struct {
		k, n int
		want float64
	}{{0, 4, 1}, {5, 5, 1.0 / 32}, {3, 4, 5.0 / 16}, {1, 1, 0.5}} {
		if got := atLeastOf(c.k, c.n); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%d of %d: %v, want %v", c.k, c.n, got, c.want)
		}
	}
}

func TestTargetsOfScale(t *testing.T) {
	for name, want := range map[string]string{
		"scale.1000.start.snap-host-controller":        "<= 15000",
		"scale.5000.start.snap-host-controller":        "<= 60000",
		"scale.1000.start.snap-host-controller.writes": "<= 0",
		"scale.1000.start.snap-host-controller.reads":  "",
		"scale.5000.restart":                           "<= 60000",
		"scale.5000.restart.writes":                    "<= 0",
		"scale.1000.restart.reads":                     "",
		"scale.1000.leader.writes":                     "<= 0",
		"scale.1000.leader":                            "",
		"scale.1000.attach50.writes":                   "",
		"scale.1000.settled.reads":                     "<= 0",
		"scale.1000.settled.beats":                     "",
		"scale.1000.attach.grant":                      "<= 100, p99 <= 500",
		"scale.5000.extender.filter":                   "<= 15, p99 <= 40",
		"scale.1000.cpu.apiservers":                    "<= 40",
		"scale.5000.cpu.apiservers":                    "",
		"scale.200.rack.freed":                         "",
	} {
		if got := TargetOf(name).String(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
