package main

// The file and the package of heartbeats.
const (
	heartbeat      = "pkg/node/heartbeat/heartbeat.go"
	heartbeatTests = "./pkg/node/heartbeat"
)

// heartbeats are the checks of where a heartbeat stands.
var heartbeats = []mutation{
	{name: "a heartbeat with a promise stands in a Lease", tests: heartbeatTests, edits: []edit{
		{heartbeat, "h.o.Namespace != \"\" && !h.o.Exact\n", "h.o.Namespace != \"\"\n"},
	}},
	{name: "what changes waits for the sixth heartbeat", tests: heartbeatTests, edits: []edit{
		{heartbeat, "h.beats >= perObject || news; {", "h.beats >= perObject; {"},
	}},
	{name: "a heartbeat that its Lease cannot carry is lost", tests: heartbeatTests, edits: []edit{
		{heartbeat, "	case lost == nil && !due:\n", "	case !due:\n"},
	}},
	{name: "a busy server is asked for the larger write", tests: heartbeatTests, edits: []edit{
		{heartbeat, " || !news && !refused(lost)):\n", "):\n"},
	}},
	{name: "news waits for a server that is busy", tests: heartbeatTests, edits: []edit{
		{heartbeat, "!news && !refused(lost)", "!refused(lost)"},
	}},
}
