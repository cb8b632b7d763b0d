package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/test/proof"
)

func TestParseLog(t *testing.T) {
	const text = "2026-01-02T03:04:05.123456789Z stdout F uid-0\n" +
		"2026-01-02T03:04:05.2Z stderr F dd: no\n" +
		"2026-01-02T03:04:05.3+00:00 stdout F uid-1\n" +
		"2026-01-02T03:04:05.4Z stdout F uid-" // still being written
	got, err := parseLog(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := []ack{{base.Add(123456789), "uid-0"}, {base.Add(300 * time.Millisecond), "uid-1"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(ack{}), cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"garbage\n", "2026-01-02T03:04:05Z stdout P half\n", "yesterday stdout F x\n"} {
		if _, err := parseLog(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is read as a line of a container's log", bad)
		}
	}
}

func TestSafety(t *testing.T) {
	var s safety
	if s.results(modeNode) != nil {
		t.Error("results of nothing")
	}
	s.checked = 5
	for _, rule := range []proof.Rule{proof.RuleAcknowledged, proof.RuleOneWriter, proof.RuleOrder, proof.RuleReceipt, proof.RuleHeld} {
		s.count(rule)
	}
	want := []Result{
		{Name: "safety.violations.node", Unit: unitCount, Runs: 5, Value: 3},
		{Name: "safety.lost_writes.node", Unit: unitCount, Runs: 5, Value: 2},
	}
	if diff := cmp.Diff(want, s.results(modeNode)); diff != "" {
		t.Error(diff)
	}
}

func TestInMode(t *testing.T) {
	for _, c := range []struct{ name, mode, want string }{
		{"failover.host_off.deployment", modeController, "failover.host_off.deployment.controller"},
		{"failover.host_off.statefulset", modeNode, "failover.host_off.statefulset.node"},
		{"failover.fence", modeController, "failover.fence"},
		{"failover.fence", modeNode, "failover.fence.node"},
		{"pod.new_volume", modeController, "pod.new_volume"},
		{"pod.new_volume", modeNode, "pod.new_volume.node"},
	} {
		if got := (&bench{mode: c.mode}).inMode(c.name); got != c.want {
			t.Errorf("%s in mode %s is %s, want %s", c.name, c.mode, got, c.want)
		}
	}
}

func TestMergeKeepsOthersAndAddsUpTheModes(t *testing.T) {
	old := []Result{{Name: "a", Value: 1}, {Name: "b", Value: 2}, {Name: "safety.violations.controller", Runs: 3, Value: 1}}
	fresh := []Result{{Name: "b", Value: 3}, {Name: "safety.violations.node", Runs: 4, Value: 2}}
	want := []Result{
		{Name: "a", Value: 1},
		{Name: "b", Value: 3},
		{Name: "safety.violations.controller", Runs: 3, Value: 1},
		{Name: "safety.violations.node", Runs: 4, Value: 2},
		{Name: "safety.violations", Unit: unitCount, Runs: 7, Value: 3},
	}
	got := merge(old, fresh)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, merge(got, fresh)); diff != "" {
		t.Errorf("a second time: %s", diff)
	}
}

func TestParseGoBench(t *testing.T) {
	const text = `goos: linux
BenchmarkInProcess/extender.prioritize.100.1000.1-2         	   24694	      8758 ns/op	     752 B/op	       8 allocs/op
BenchmarkInProcess/extender.prioritize.100.1000.1-2         	   24694	      9000 ns/op	     752 B/op	       8 allocs/op
BenchmarkHTTP/extender.http.5000.1claim   	 300	 1.5 p99-ms	 231.5 pods/s
PASS
`
	want := map[string]map[string][]float64{
		"extender.prioritize.100.1000.1": {"ns/op": {8758, 9000}, "B/op": {752, 752}, "allocs/op": {8, 8}},
		"extender.http.5000.1claim":      {"p99-ms": {1.5}, "pods/s": {231.5}},
	}
	got, err := parseGoBench(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := parseGoBench("PASS\n"); err == nil {
		t.Error("no benchmark is no error")
	}
}

func TestByNumbers(t *testing.T) {
	got := []string{"a.1000.1", "a.100.10", "a.100.9", "a.5000.1"}
	slices.SortFunc(got, byNumbers)
	if diff := cmp.Diff([]string{"a.100.9", "a.100.10", "a.1000.1", "a.5000.1"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestRender(t *testing.T) {
	dir := t.TempDir()
	page, file, newer := filepath.Join(dir, "page.md"), filepath.Join(dir, "x.json"), filepath.Join(dir, "y.json")
	const results = `[
		{"name":"attach.single","unit":"ms","runs":9,"p50":9,"p99":9,"value":9,"machine":"m","commit":"b"},
		{"name":"provision","unit":"ms","runs":3,"p50":1,"p99":2,"value":1,"failed":2,"machine":"m","commit":"c"}]`
	const later = `[{"name":"attach.single","unit":"ms","runs":3,"p50":1,"p99":2,"value":700,"machine":"m","commit":"c"}]`
	old := "head\n" + renderBegin + "\nold\n" + renderEnd + "\ntail\n"
	for path, text := range map[string]string{page: old, file: results, newer: later} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := render(page, []string{file, newer}); err != nil {
		t.Fatal(err)
	}
	want := "head\n" + renderBegin + "\n" + "`bench/results/x.json`, `bench/results/y.json`: m.\n\n" +
		"| Name | Runs | p50 | p99 | Value | Target | Commit |\n|---|---|---|---|---|---|---|\n" +
		"| `attach.single` | 3 | 1 | 2 | 700 ms | <= 600: **missed** | c |\n" +
		"| `provision` | 3 | 1 | 2 | 1 ms | 2 of 5 runs failed | c |\n" +
		renderEnd + "\ntail\n"
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	if err := render(file, []string{file}); err == nil {
		t.Error("a page without the marks is no error")
	}
}
