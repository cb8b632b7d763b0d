package main

import (
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/test/bench/results"
)

// TestASeriesTellsWhatFailed: runs that fail stay in the file, and turn it red.
func TestASeriesTellsWhatFailed(t *testing.T) {
	b := &bench{mode: results.ModeNode, invocation: "t1"}
	s := b.series("clone.1gib", results.Millis, results.Median)
	s.add(1, 2, 3.14159)
	if err := results.Judge(io.Discard, b.file(results.Invocation{Commit: "c"}), nil); err != nil {
		t.Fatalf("good results: %v", err)
	}
	b.series("clone.1gib", results.Millis, results.Median).fail(errors.New("no pod"))
	f := b.file(results.Invocation{Commit: "c"})
	if len(f.Series) != 1 || len(f.Series[0].Samples) != 4 || f.Series[0].Samples[2].Value != 3.14 || f.Series[0].Samples[3].Failed != "no pod" {
		t.Errorf("%+v", f.Series)
	}
	if results.Judge(io.Discard, f, nil) == nil {
		t.Error("a failed run is no error")
	}
}

func TestJudge(t *testing.T) {
	of := func(prepare func(*bench)) results.File {
		b := &bench{mode: results.ModeController, invocation: "t1"}
		prepare(b)
		return b.file(results.Invocation{Commit: "c"})
	}
	for _, c := range []struct {
		name    string
		prepare func(*bench)
		good    bool
	}{
		{"nothing measured", func(*bench) {}, false},
		{"a series without a sample", func(b *bench) { b.series("provision", results.Millis, results.Median) }, false},
		{"safe", func(b *bench) { b.checked(0, 0) }, true},
		{"a violation", func(b *bench) { b.checked(0, 0); b.checked(1, 0); b.checked(0, 0) }, false},
		{"a lost write", func(b *bench) { b.checked(0, 2) }, false},
		{"a missed target", func(b *bench) { b.series("clone.1gib", results.Millis, results.Median).add(1e9) }, false},
		{"a known miss", func(b *bench) { b.series("attach.single", results.Millis, results.Median).add(1e9) }, true},
	} {
		err := results.Judge(io.Discard, of(c.prepare), results.KnownMisses{"attach.single": "slow"})
		if (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestInMode(t *testing.T) {
	for _, c := range []struct{ name, mode, want string }{
		{"failover.host_off.deployment", results.ModeController, "failover.host_off.deployment.controller"},
		{"failover.host_off.statefulset", results.ModeNode, "failover.host_off.statefulset.node"},
		{"failover.fence", results.ModeController, "failover.fence"},
		{"failover.fence", results.ModeNode, "failover.fence.node"},
		{"pod.new_volume", results.ModeController, "pod.new_volume"},
		{"pod.new_volume", results.ModeNode, "pod.new_volume.node"},
	} {
		if got := (&bench{mode: c.mode}).inMode(c.name); got != c.want {
			t.Errorf("%s in mode %s is %s, want %s", c.name, c.mode, got, c.want)
		}
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
