package main

// The files of proofs by the power of a machine.
const (
	rulePower     = "pkg/writer/power.go"
	powerIdentity = "pkg/power/power.go"
)

// powers are the checks of what a BMC says, each of which some BMC fails.
var powers = []mutation{
	{name: "a BMC may answer for another machine", tests: right, edits: []edit{
		{rulePower, "	case p.Want.Refuse(r.Is) != \"\":\n		return p.Want.Refuse(r.Is)\n	case r.System", "	case r.System"},
	}},
	{name: "a BMC may answer for another machine after a reset", tests: right, edits: []edit{
		{rulePower, "		if refused := p.Want.Refuse(r.Is); refused != \"\" {", "		if refused := p.Want.Refuse(r.Is); refused == \"-\" {"},
	}},
	{name: "no machine need be on record", tests: right, edits: []edit{
		{rulePower, "	if refused := p.Want.Refuse(p.Want); refused != \"\" {", "	if refused := p.Want.Refuse(p.Want); refused == \"-\" {"},
	}},
	{name: "the UUID on record does not count", tests: "./pkg/power", edits: []edit{
		{powerIdentity, "	case want.UUID != \"\" && ", "	case want.UUID == \"-\" && "},
	}},
	{name: "a request to switch off that was accepted counts as done", tests: right, edits: []edit{
		{rulePower, "	case r.System != power.StateOff:", "	case r.System == \"-\":"},
	}},
	{name: "what is neither on nor off counts as off", tests: right, edits: []edit{
		{rulePower, "	case r.System != power.StateOff:", "	case r.System == power.StateOn:"},
	}},
	{name: "a chassis that is on does not count", tests: right, edits: []edit{
		{rulePower, "	case r.Chassis != \"\" && r.Chassis != power.StateOff:", "	case r.Chassis == \"-\":"},
	}},
	{name: "off once is off", tests: right, edits: []edit{
		{rulePower, "	case len(series) < PowerReadings || last.Sub(first) < need:", "	case last.Sub(first) < 0*need:"},
	}},
	{name: "off for as long as it takes, by two readings", tests: right, edits: []edit{
		{rulePower, "	case len(series) < PowerReadings || last.Sub(first) < need:", "	case last.Sub(first) < need:"},
	}},
	{name: "what the storage had received from a host that is off is not waited for", tests: right, edits: []edit{
		{rulePower, "	need := PowerSettle + p.Drain", "	need := PowerSettle"},
	}},
	{name: "a machine that came on in between counts as off all the time", tests: right, edits: []edit{
		{rulePower, "			series = nil\n			continue\n", "			continue\n"},
	}},
	{name: "what was not read counts as off", tests: right, edits: []edit{
		{rulePower, "r.At.Sub(series[n-1].At) > PowerGap", "r.At.Sub(series[n-1].At) < 0"},
	}},
	{name: "off a while ago is off", tests: right, edits: []edit{
		{rulePower, "	case p.Now.Sub(last) > PowerGap:\n		return \"\", p.waits(p.old(last))\n	}\n	return fmt.Sprintf(\"%s is off", "	}\n	return fmt.Sprintf(\"%s is off"},
	}},
	{name: "a DPU that is heard may be off", tests: right, edits: []edit{
		{rulePower, "latest(p.Accepted, p.Fencing, p.Heard)", "latest(p.Accepted, p.Fencing)"},
	}},
	{name: "off before our request counts", tests: right, edits: []edit{
		{rulePower, "latest(p.Accepted, p.Fencing, p.Heard)", "latest(p.Fencing, p.Heard)"},
	}},
	{name: "off before the fence counts", tests: right, edits: []edit{
		{rulePower, "latest(p.Accepted, p.Fencing, p.Heard)", "latest(p.Accepted, p.Heard)"},
	}},
	{name: "a machine without a request of ours is judged", tests: right, edits: []edit{
		{rulePower, "	if p.Accepted.IsZero() || ", "	if "},
	}},
	{name: "a reset before the fence counts", tests: right, edits: []edit{
		{rulePower, "	if !p.Before.At.After(p.Fencing) || ", "	if "},
	}},
	{name: "a request to reset that was accepted counts as done", tests: right, edits: []edit{
		{rulePower, "		if len(seen) > 0 || wasReset(p.Before, r) {", "		if len(seen) > 0 || r.At.After(p.Accepted) {"},
	}},
	{name: "a DPU that was booting before the request counts as reset", tests: right, edits: []edit{
		{rulePower, "		before.Stage == power.StageRunning && after.Stage == power.StageBooting", "		after.Stage == power.StageBooting"},
	}},
	{name: "any time of the last reset is a later one", tests: right, edits: []edit{
		{rulePower, "after.LastReset.After(before.LastReset)", "!after.LastReset.Equal(before.LastReset)"},
	}},
	{name: "what the storage had received from a DPU that was reset is not waited for", tests: right, edits: []edit{
		{rulePower, " || last.Sub(first) < p.Drain:", ":"},
	}},
	{name: "a DPU that is heard after its reset is not asked itself", tests: right, edits: []edit{
		{rulePower, "	case !p.Heard.Before(first):", "	case p.Heard.Equal(p.Heard.Add(1)):"},
	}},
}
