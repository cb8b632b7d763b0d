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
		{"rss.snap-emulator-dpu", 12, "ok"},
		{"rss", 99, ""},
		{"provision", 1, ""},
		{"failover.host_off.statefulset.node", 4_001, "MISSED"},
		{"failover.host_off.statefulset.controller", 10_000, "ok"},
		{"failover.host_and_dpu_off.node", 20_001, "MISSED"},
		{"failover.fence", 99_999, "ok"},
		{"safety.violations.node", 0, "ok"},
		{"safety.lost_writes", 1, "MISSED"},
		{"extender.prioritize.1000.50000.8", 100.1, "MISSED"},
		{"extender.http.5000.rate", 199, "MISSED"},
		{"extender.replica_node_chosen", 100, "ok"},
	} {
		if got := verdict(Result{Name: c.name, Value: c.value}); got != c.want {
			t.Errorf("%s of %v is %q, want %q", c.name, c.value, got, c.want)
		}
	}
}

func TestVerdictOfPercentileAndFailures(t *testing.T) {
	for _, c := range []struct {
		of   Result
		want string
	}{
		{Result{Name: "failover.fence", P99: 301}, "MISSED"},
		{Result{Name: "failover.host_off.deployment.node", Value: 1, P99: 7_001}, "MISSED"},
		{Result{Name: "failover.volumes20", Value: 1, Runs: 2, Failed: 1}, "ok, 1 of 3 runs failed"},
		{Result{Name: "provision", Runs: 2, Failed: 1}, "1 of 3 runs failed"},
	} {
		if got := verdict(c.of); got != c.want {
			t.Errorf("%+v is %q, want %q", c.of, got, c.want)
		}
	}
	if got := targetOf("failover.host_off.deployment.node").String(); got != "<= 4000, p99 <= 7000" {
		t.Errorf("the target is %q", got)
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
