package main

const (
	doubtTimer = "pkg/controller/failover/doubt/doubt.go"
	doubtPass  = "pkg/controller/failover/observe.go"
	doubtTests = "./pkg/controller/failover/doubt"
)

// doubts are the checks of a host that fails over because time is over.
var doubts = []mutation{
	{name: "a host in doubt fails over at once", tests: pathFence, edits: []edit{
		{doubtPass, "	case left > 0:\n", "	case left > time.Hour:\n"},
	}},
	{name: "a host fails over by a doubt without a limit", tests: pathFence, edits: []edit{
		{doubtPass, "	case limit == 0 || p.requested():", "	case p.requested():"},
	}},
	{name: "a plugin that is not well is a host that is not Ready", tests: pathFence, edits: []edit{
		{doubtPass, "p.state == HostHung && p.api == APINotReady:", "p.state == HostHung:"},
	}},
	{name: "a DPU that has given a lease is taken for silent before it is over", tests: pathFence, edits: []edit{
		{doubtPass, "p.state == DPUDead && !p.lease.Given && ", "p.state == DPUDead && "},
	}},
	{name: "a ZeroTrust host of which nothing is heard lives", tests: pathFence, edits: []edit{
		{doubtPass, " && !p.observation.ZeroTrust:\n		return doubt.DPUSilent", ":\n		return doubt.DPUSilent"},
	}},
	{name: "a doubt that was interrupted goes on", tests: doubtTests, edits: []edit{
		{doubtTimer, "		t.since.Forget(host)\n", ""},
	}},
	{name: "a doubt that has become another goes on", tests: doubtTests, edits: []edit{
		{doubtTimer, "known == 0 || is.kind != kind {", "known == 0 || is.kind == \"-\" {"},
	}},
	{name: "a host in doubt is known by its name", tests: pathFence, edits: []edit{
		{doubtPass, "p.doubts.Note(p.node.UID,", "p.doubts.Note(types.UID(p.node.Name),"},
		{doubtPass, "	corev1 \"k8s.io/api/core/v1\"\n", "	corev1 \"k8s.io/api/core/v1\"\n	\"k8s.io/apimachinery/pkg/types\"\n"},
	}},
}
