package main

import (
	"strings"
	"testing"
)

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		name  string
		value float64
		want  string
	}{
		{"attach.single", 600, "ok"},
		{"attach.single", 600.01, "MISSED"},
		{"attach.parallel50", 99_999, ""},
		{"attach.parallel50.all", 10_001, "MISSED"},
		{"pod.new_volume", 9_000, "ok"},
		{"rss.snap-controller", 80.5, "MISSED"},
		{"rss.snap-emulator-dpu", 12, "ok"},
		{"rss", 99, ""},
		{"provision", 1, ""},
	} {
		if got := verdict(Result{Name: c.name, Value: c.value}); got != c.want {
			t.Errorf("%s of %v is %q, want %q", c.name, c.value, got, c.want)
		}
	}
}

func TestPrintResults(t *testing.T) {
	var out strings.Builder
	err := printResults(&out, []Result{
		{Name: "attach.single", Unit: unitMillis, Runs: 100, P50: 700.5, P99: 900, Value: 700.5},
		{Name: "provision", Unit: unitMillis, Runs: 3, P50: 1, P99: 2, Value: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "" +
		"name           runs  p50    p99  value  unit  target  \n" +
		"attach.single  100   700.5  900  700.5  ms    <= 600  MISSED\n" +
		"provision      3     1      2    1      ms            \n"
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
}

func TestPrintWrites(t *testing.T) {
	var out strings.Builder
	rows := []writeRow{{cluster: "dpu", who: "snap-controller", verb: "update", resource: "volumes/status", count: 5, refused: 1}}
	if err := printWrites(&out, rows, 4); err != nil {
		t.Fatal(err)
	}
	if want := "dpu      snap-controller  update  volumes/status  1.25               0.25     \n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("printed\n%s\nwant it to end in\n%s", out.String(), want)
	}
}
