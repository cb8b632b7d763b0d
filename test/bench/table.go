package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// target bounds a result, on two cores.
type target struct {
	// name of the result; with a dot at the end, of all that begin so.
	name string
	// most is the most that the value may be, least the least, p99 the most
	// that the 99th percentile may be; nil is no bound.
	most, least, p99 *float64
}

func value(most float64) target { return target{most: &most} }

func (t target) of(name string) target      { t.name = name; return t }
func (t target) andP99(most float64) target { t.p99 = &most; return t }
func atLeast(least float64) target          { return target{least: &least} }

// targets of Moor, in the units of the results. The first that fits counts.
var targets = []target{
	value(600).of("attach.single"),
	value(10_000).of("attach.parallel50.all"),
	value(1_000).of("hotplug.attach"),
	value(30_000).of("hotplug.parallel31"),
	value(1_000).of("snapshot.1gib"),
	value(2_000).of("clone.1gib"),
	value(10_000).of("expand.pod"),
	value(200).of("list.volumes1000"),
	value(9_000).of("pod.new_volume"),
	value(80).of("rss."),
	value(10_000).andP99(16_000).of("failover.host_off.statefulset." + modeController),
	value(10_000).andP99(16_000).of("failover.host_off.deployment." + modeController),
	value(4_000).andP99(7_000).of("failover.host_off.statefulset." + modeNode),
	value(4_000).andP99(7_000).of("failover.host_off.deployment." + modeNode),
	value(20_000).of("failover.host_and_dpu_off"),
	target{}.andP99(300).of("failover.fence"),
	target{}.andP99(300).of("failover.promote"),
	value(0.6).of("failover.drain.ratio"),
	value(0.6).of("failover.drain.storage2s.ratio"),
	value(0.6).of("failover.drain.storage10s.ratio"),
	value(25_000).of("failover.volumes20"),
	value(25_000).of("failover.host_off.controllers_killed"),
	value(0).of("safety."),
	// 50 us, and 0.05 us for each node.
	value(55).of("extender.prioritize.100."),
	value(100).of("extender.prioritize.1000."),
	value(300).of("extender.prioritize.5000."),
	value(20).of("extender.allocations."),
	target{}.andP99(20).of("extender.http.5000"),
	atLeast(200).of("extender.http.5000.rate"),
	atLeast(100).of("extender.replica_node_chosen"),
}

// targetOf finds the target of a result; without one it has no bounds. What
// has no mode in its name has the same target in every mode.
func targetOf(name string) target {
	for _, t := range targets {
		if name == t.name || strings.HasSuffix(t.name, ".") && strings.HasPrefix(name, t.name) || name == t.name+"."+modeNode {
			return t
		}
	}
	return target{}
}

// String says the bounds.
func (t target) String() string {
	var out []string
	for _, bound := range []struct {
		sign string
		at   *float64
	}{{"<= ", t.most}, {">= ", t.least}, {"p99 <= ", t.p99}} {
		if bound.at != nil {
			out = append(out, bound.sign+number(*bound.at))
		}
	}
	return strings.Join(out, ", ")
}

// verdict is ok or MISSED, or empty without a target; and how many runs
// failed.
func verdict(r Result) string {
	t := targetOf(r.Name)
	out := ""
	switch {
	case t.String() == "":
	case exceeds(r.Value, t.most), t.least != nil && r.Value < *t.least, exceeds(r.P99, t.p99):
		out = "MISSED"
	default:
		out = "ok"
	}
	if r.Failed == 0 {
		return out
	}
	return strings.TrimPrefix(fmt.Sprintf("%s, %d of %d runs failed", out, r.Failed, r.Runs+r.Failed), ", ")
}

func exceeds(x float64, most *float64) bool { return most != nil && x > *most }

// printResults prints the table of results beside their targets.
func printResults(out io.Writer, results []Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "name\truns\tp50\tp99\tvalue\tunit\ttarget\t")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n",
			r.Name, r.Runs, number(r.P50), number(r.P99), number(r.Value), r.Unit, targetOf(r.Name), verdict(r))
	}
	return w.Flush()
}

// printWrites prints who wrote what, per attach and detach.
func printWrites(out io.Writer, rows []writeRow, runs int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "cluster\twho\tverb\tresource\tper attach+detach\trefused\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", r.cluster, r.who, r.verb, r.resource,
			number(round(float64(r.count)/float64(runs))), number(round(float64(r.refused)/float64(runs))))
	}
	return w.Flush()
}

// number prints as few digits as say it.
func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
