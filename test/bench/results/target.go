package results

import (
	"strconv"
	"strings"
)

// Modes of attaching, the ends of names.
const (
	ModeController = "controller"
	ModeNode       = "node"
)

// Target bounds a result, on two cores.
type Target struct {
	// name of the result; with a dot at the end, of all that begin so.
	name string
	// most is the most that the value may be, least the least, p99 the most
	// that the 99th percentile may be; nil is no bound.
	most, least, p99 *float64
}

func value(most float64) Target { return Target{most: &most} }

func (t Target) of(name string) Target      { t.name = name; return t }
func (t Target) andP99(most float64) Target { t.p99 = &most; return t }
func atLeast(least float64) Target          { return Target{least: &least} }

// targets of Moor, in the units of the results. The first that fits counts.
var targets = []Target{
	value(600).of("attach.single"),
	value(5_000).of("attach.parallel50.all"),
	value(1_000).of("hotplug.attach"),
	value(30_000).of("hotplug.parallel31"),
	value(1_000).of("snapshot.1gib"),
	value(2_000).of("clone.1gib"),
	value(10_000).of("expand.pod"),
	value(200).of("list.volumes1000"),
	value(9_000).of("pod.new_volume"),
	value(4_000).of("podvolumes.new_volume"),
	value(30_000).of("podvolumes.bound50.all"),
	value(9_000).of("podvolumes.dpu.new_volume"),
	value(1).of("podvolumes.templates"),
	value(80).of("podvolumes.rss.controller"),
	value(80).of("rss."),
	value(1).of("idle.cpu."),
	value(10_000).andP99(16_000).of("failover.host_off.statefulset." + ModeController),
	value(10_000).andP99(16_000).of("failover.host_off.deployment." + ModeController),
	value(4_000).andP99(7_000).of("failover.host_off.statefulset." + ModeNode),
	value(4_000).andP99(7_000).of("failover.host_off.deployment." + ModeNode),
	value(20_000).of("failover.host_and_dpu_off"),
	value(25_000).andP99(35_000).of("failover.power"),
	Target{}.andP99(300).of("failover.fence"),
	Target{}.andP99(300).of("failover.promote"),
	value(0.6).of("failover.drain.ratio"),
	value(0.6).of("failover.drain.storage2s.ratio"),
	value(0.6).of("failover.drain.storage10s.ratio"),
	value(8_000).of("failover.volumes20." + ModeNode),
	value(25_000).of("failover.volumes20"),
	value(15_000).andP99(25_000).of("failover.snap_killed"),
	value(5_000).of("failover.snap_killed_with_state"),
	value(20_000).andP99(30_000).of("epochs.failover.path_cut"),
	value(25_000).of("failover.host_off.controllers_killed"),
	value(8_000).andP99(15_000).of("failover.host_off.leaders_lost." + ModeNode),
	value(0).of(SafetyViolations),
	value(0).of(SafetyViolations + "."),
	value(0).of(SafetyLost),
	value(0).of(SafetyLost + "."),
	value(5).of("journal.write"),
	// 50 us, and 0.05 us for each node.
	value(55).of("extender.prioritize.100."),
	value(100).of("extender.prioritize.1000."),
	value(300).of("extender.prioritize.5000."),
	value(20).of("extender.allocations."),
	value(20).of("extender.http.5000"),
	atLeast(200).of("extender.http.5000.rate"),
	atLeast(100).of("extender.replica_node_chosen"),
}

// scale are the targets of test/scale, in worlds of 1,000 and of 5,000 hosts. The
// first that fits counts.
var scale = []struct {
	name           string
	small, large   float64 // the most
	smallP, largeP float64 // the most of the 99th percentile; 0 is none
}{
	{name: "start.*.writes", small: 0, large: 0},
	{name: "start.*.reads", small: -1, large: -1},
	{name: "start.", small: 15_000, large: 60_000},
	{name: "restart.writes", small: 0, large: 0},
	{name: "leader.writes", small: 0, large: 0},
	{name: "restart", small: 15_000, large: 60_000},
	{name: "settled.reads", small: 0, large: 0},
	{name: "settled.writes", small: 0, large: 0},
	{name: "cpu.snap-host-controller", small: 5, large: 25},
	{name: "cpu.apiservers", small: 40, large: -1},
	{name: "rss.snap-host-controller", small: 250, large: 1000},
	{name: "rss.snap-controller", small: 200, large: 800},
	{name: "rss.snap-csi-plugin", small: 200, large: 800},
	{name: "rss.scheduler-extender", small: 200, large: 800},
	{name: "list.pages", small: 300, large: 2000},
	{name: "attach.grant", small: 100, large: 200, smallP: 500, largeP: 1000},
	{name: "attach50.granted", small: 3000, large: 5000},
	{name: "host.freed", small: 2000, large: 4000},
	{name: "rack.freed", small: 15_000, large: 30_000},
	{name: "extender.filter", small: 5, large: 15, smallP: 20, largeP: 40},
	{name: "extender.prioritize", small: 5, large: 15, smallP: 20, largeP: 40},
}

// ofScale is the target of a result of test/scale, whose name is behind its size.
func ofScale(name string) Target {
	size, what, _ := strings.Cut(name, ".")
	if size != "1000" && size != "5000" {
		return Target{}
	}
	for _, t := range scale {
		begin, end, star := strings.Cut(t.name, "*")
		fits := what == t.name || strings.HasSuffix(t.name, ".") && strings.HasPrefix(what, t.name) ||
			star && strings.HasPrefix(what, begin) && strings.HasSuffix(what, end)
		if !fits {
			continue
		}
		most, p99 := t.small, t.smallP
		if size == "5000" {
			most, p99 = t.large, t.largeP
		}
		out := Target{name: "scale." + name}
		if most >= 0 {
			out.most = &most
		}
		if p99 > 0 {
			out.p99 = &p99
		}
		return out
	}
	return Target{}
}

// TargetOf finds the target of a result; without one it has no bounds. What has
// no mode in its name has the same target in every mode.
func TargetOf(name string) Target {
	if what, found := strings.CutPrefix(name, "scale."); found {
		return ofScale(what)
	}
	for _, t := range targets {
		if name == t.name || strings.HasSuffix(t.name, ".") && strings.HasPrefix(name, t.name) || name == t.name+"."+ModeNode {
			return t
		}
	}
	return Target{}
}

// Bounds reports whether there are any.
func (t Target) Bounds() bool { return t.String() != "" }

// String says the bounds.
func (t Target) String() string {
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

// met reports whether a result is within the bounds.
func (t Target) met(s Summary) bool {
	return t.within(s.Value) && (t.p99 == nil || s.P99 <= *t.p99)
}

// within reports whether a value, or one sample, is within the bounds of the
// value.
func (t Target) within(x float64) bool {
	return (t.most == nil || x <= *t.most) && (t.least == nil || x >= *t.least)
}

// number prints as few digits as say it.
func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
