package main

// The files of proofs by the power of a machine.
const (
	rulePower     = "pkg/writer/power.go"
	powerIdentity = "pkg/power/power.go"
	powerKeeper   = "pkg/controller/failover/powerproof/keeper.go"
	powerChoose   = "pkg/controller/failover/powerproof/choose.go"
	powerStep     = "pkg/controller/failover/powerproof/step.go"
	powerRedfish  = "pkg/power/redfish/redfish.go"
	powerGuard    = "pkg/power/redfish/guard.go"

	powerProof = "./pkg/controller/failover/powerproof"
	powerBMC   = "./pkg/power/redfish"
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
		{rulePower, "	return first, PowerSettle + p.Drain", "	return first, PowerSettle"},
	}},
	{name: "what the storage had received from a host that was off before is not waited for", tests: right, edits: []edit{
		{rulePower, "	return p.Before.At, PowerWasOff + p.Drain", "	return p.Before.At, PowerWasOff"},
	}},
	{name: "a host that came on in between was off before", tests: right, edits: []edit{
		{rulePower, "	unbroken := p.Readings[all].At.Equal(first) && ", "	unbroken := all >= 0 && "},
	}},
	{name: "a host that is off by our request is off as soon as one that was off before", tests: right, edits: []edit{
		{rulePower, "	before := p.notOff(p.Before) == \"\" && ", "	before := "},
	}},
	{name: "a host is off sooner though its DPU was heard just then", tests: right, edits: []edit{
		{rulePower, " && p.Before.At.Sub(p.Heard) > PowerSilence", ""},
	}},
	{name: "a machine is touched though the storage revokes", tests: right, edits: []edit{
		{ruleReceipt, "	return silent && !e.Storage.Vouched && ", "	return silent && "},
	}},
	{name: "a machine is touched though the DPU gave a lease", tests: right, edits: []edit{
		{ruleReceipt, "!e.Storage.Vouched && !e.Lease.Given && ", "!e.Storage.Vouched && "},
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

	// What is touched, and when.
	{name: "a machine is touched before other proofs were waited for", tests: powerProof, edits: []edit{
		{powerKeeper, "	if now.Sub(since) < k.o.After && !q.Alone {", "	if now.Sub(since) < 0 {"},
	}},
	{name: "what was done for one epoch counts for the next", tests: powerProof, edits: []edit{
		{powerKeeper, "!is || known.epoch != q.Epoch {", "!is || known.epoch < 0 {"},
	}},
	{name: "a host is asked to come on by each pass", tests: powerProof, edits: []edit{
		{powerStep, "!released || k.o.Clock.Since(asked) < again {", "!released || asked.Unix() < -1<<62 {"},
	}},
	{name: "a host that lives is switched off", tests: powerProof, edits: []edit{
		{powerChoose, "spec.Host != nil && q.MayOff, ", "spec.Host != nil, "},
	}},
	{name: "a DPU that is heard is reset by its BMC", tests: powerProof, edits: []edit{
		{powerChoose, " && q.MayReset\n", "\n"},
	}},
	{name: "a host that is off proves something of any card", tests: powerProof, edits: []edit{
		{powerChoose, "	case host && spec.DPUPower == moorv1alpha1.DPUPowerHost:", "	case host:"},
	}},
	{name: "that a host is switched off so that its DPU lets go is a proof", tests: powerProof, edits: []edit{
		{powerKeeper, "	if way.words != \"\" || r == nil", "	if r == nil"},
	}},
	{name: "another machine is switched off", tests: powerProof, edits: []edit{
		{powerStep, "	if refused := config.Want.Refuse(reading.Is); refused != \"\" {\n		return r, ", "	if refused := config.Want.Refuse(reading.Is); refused == \"-\" {\n		return r, "},
	}},
	{name: "another machine is switched on", tests: powerProof, edits: []edit{
		{powerStep, "	if refused := config.Want.Refuse(reading.Is); refused != \"\" {\n		return ctrl.Result{}, ", "	if refused := config.Want.Refuse(reading.Is); refused == \"-\" {\n		return ctrl.Result{}, "},
	}},
	{name: "a host is switched on against the installer's word", tests: powerProof, edits: []edit{
		{powerStep, "	case control.Spec.PowerOn != moorv1alpha1.PowerOnReleased || ", "	case control.Spec.PowerOn == \"-\" || "},
	}},
	{name: "a host is switched on that was not switched off here", tests: powerProof, edits: []edit{
		{powerKeeper, " || control.Status.HostOff == nil {", " {"},
		{powerKeeper, "stamp(control.Status.HostOff)", "\"some time\""},
		{powerStep, "	case released && control.Status.HostOff != nil:", "	case released:"},
	}},
	{name: "a machine is touched before that is on record", tests: powerProof, edits: []edit{
		{powerStep, "			c.Status.DPUReset = &now", "			_ = now"},
	}},
	{name: "a host is switched off before that is on record", tests: powerProof, edits: []edit{
		{powerStep, "		case c.Status.HostOff == nil:", "		case c.Status.HostOff != nil:"},
	}},
	{name: "a DPU is reset again at once after a restart", tests: powerProof, edits: []edit{
		{powerStep, "last != nil && now.Sub(last.Time) < again {", "last != nil && now.Sub(last.Time) < 0 {"},
	}},
	{name: "what was asked for a claim that is free is done to its machine", tests: powerProof, edits: []edit{
		{powerKeeper, "	if delete(s.fencing, claim); len(s.fencing) == 0 {", "	if delete(s.fencing, claim); len(s.fencing) < 0 {"},
	}},
	{name: "a question of long ago is cause to touch a machine", tests: powerProof, edits: []edit{
		{powerStep, "k.o.Clock.Since(s.asked) <= asksNow && ", ""},
	}},
	{name: "a machine is touched though the DPU's own word has come", tests: pathFence, edits: []edit{
		{fenceAct, "	f.power.Done(p.node.Name, powerClaim(t))\n	t.claim = freed", "	t.claim = freed"},
	}},
	{name: "what cannot be heard counts as the silence of a DPU", tests: pathFence, edits: []edit{
		{"pkg/nodehealth/dpus.go", "	if w.first.IsZero() || now.Sub(r.heard) > o.silence/2 {", "	if w.first.IsZero() {"},
	}},

	// How a BMC is spoken to.
	{name: "a machine that is not on record is switched by its BMC", tests: powerBMC, edits: []edit{
		{powerRedfish, "		if refused := b.c.Want.Refuse(identity(s)); refused != \"\" {", "		if refused := b.c.Want.Refuse(identity(s)); refused == \"-\" {"},
	}},
	{name: "the password goes wherever a BMC leads", tests: powerBMC, edits: []edit{
		{powerGuard, "	if r.URL.Scheme != \"https\" || r.URL.Host != g.host || r.URL.User != nil {", "	if r.URL.Scheme != \"https\" {"},
	}},
	{name: "a password is told that a BMC echoes", tests: powerBMC, edits: []edit{
		{powerGuard, "			text = strings.ReplaceAll(text, secret, \"***\")", "			text = strings.ReplaceAll(text, secret, secret)"},
	}},
	{name: "what a BMC does not say literally is off", tests: powerBMC, edits: []edit{
		{"pkg/power/redfish/convert.go", "	return power.StateUnknown\n", "	return power.StateOff\n"},
	}},
	{name: "a BMC that refuses has accepted", tests: powerBMC, edits: []edit{
		{powerRedfish, " && already != \"\" && s.PowerState == already {", " {"},
	}},
}
