package main

// The packages of lost paths, and their files that are edited more than once.
const (
	dpuPaths  = "./pkg/node/dpu/paths"
	lostPath  = "./pkg/controller/failover/lostpath"
	pathFence = "./pkg/controller/failover"

	pathJudge  = "pkg/node/dpu/paths/judge.go"
	lostJudge  = "pkg/controller/failover/lostpath/judge.go"
	lostReader = "pkg/controller/failover/lostpath/reader.go"
	pathMoves  = "pkg/controller/failover/paths.go"
)

// lostPaths are the checks around ways to the storage that are lost, each switched off.
var lostPaths = []mutation{
	// What a DPU tells.
	{name: "a path is lost at its first sign", tests: dpuPaths, edits: []edit{
		{pathJudge, "lost != t.lost && now.Sub(t.since) >= b.grace", "lost != t.lost && (!t.lost || now.Sub(t.since) >= b.grace)"},
	}},
	{name: "a path is found at the first look that is well", tests: dpuPaths, edits: []edit{
		{pathJudge, "lost != t.lost && now.Sub(t.since) >= b.grace", "lost != t.lost && (t.lost || now.Sub(t.since) >= b.grace)"},
	}},
	{name: "I/O that does not end is no sign", tests: dpuPaths, edits: []edit{
		{pathJudge, "return now.Sub(t.movedAt) >= lookPeriod }", "return now.Sub(t.movedAt) >= 1000*lookPeriod }"},
	}},
	{name: "what SNAP did not tell of counts as borne", tests: dpuPaths, edits: []edit{
		{pathJudge, "began.Before(earliest) {", "began.IsZero() {"},
	}},
	{name: "a SNAP that stays away is no sign", tests: dpuPaths, edits: []edit{
		{pathJudge, "return b.away > 0 && t.awayFor >= b.away }", "return b.away > 0 && t.awayFor >= 1000*b.away }"},
	}},
	{name: "a SNAP that is started again is a loss", tests: dpuPaths, edits: []edit{
		{pathJudge, "return b.away > 0 && t.awayFor >= b.away }", "return b.away > 0 && t.awayFor > 0 }"},
	}},
	{name: "a SNAP that refuses to tell of its paths is away", tests: "./pkg/node/dpu/exposures", edits: []edit{
		{"pkg/node/dpu/exposures/paths.go", "!errors.Is(errs[i], provisioner.ErrSilent) {", "errs[i] == nil {"},
	}},
	{name: "a SNAP that starts is back", tests: dpuPaths, edits: []edit{
		{pathJudge, "	if now.Sub(t.backSince) >= steady {", "	if now.Sub(t.backSince) >= 0 {"},
	}},
	{name: "a SNAP service that is away is away for what another shows", tests: dpuPaths, edits: []edit{
		{"pkg/node/dpu/paths/ways.go", "!slices.Contains(j.heard, r.Service)\n", "len(j.heard) < 2\n"},
	}},
	{name: "a storage without I/O is not asked", tests: dpuPaths, edits: []edit{
		{pathJudge, "	return path.InFlight <= 0 && now.Sub(t.asked) >= period", "	return false"},
	}},
	{name: "a question that was never understood is a sign", tests: dpuPaths, edits: []edit{
		{pathJudge, "	case t.silent && t.answers || t.open", "	case t.silent || t.open"},
	}},
	{name: "what was sent over a lost way is drained", tests: "./pkg/node/dpu", edits: []edit{
		{"pkg/node/dpu/exposures/incarnation.go", "	if loss = cmp.Or(loss, e.lossNow(ctx, shown)); loss == \"\" {", "	if loss = cmp.Or(loss, e.lossNow(ctx, shown)); loss != \"-\" {"},
	}},
	{name: "a way that is lost between two looks is well when the device is taken away", tests: "./pkg/node/dpu/exposures", edits: []edit{
		{"pkg/node/dpu/exposures/incarnation.go", "e.ways.Seen(path)", "_ = path"},
	}},
	{name: "a way of which SNAP tells nothing is well", tests: "./pkg/node/dpu/exposures", edits: []edit{
		{"pkg/node/dpu/exposures/incarnation.go", "err := e.Look(ctx, shown); errors.Is(err, provisioner.ErrSilent)", "err := e.Look(ctx, shown); false && errors.Is(err, provisioner.ErrSilent)"},
	}},
	{name: "the loss of a device that is gone stays", tests: dpuPaths, edits: []edit{
		{"pkg/node/dpu/paths/ways.go", "case r.Going && !known && t != nil", "case false && !known && t != nil"},
	}},
	{name: "the loss of a device that may be made anew ends", tests: dpuPaths, edits: []edit{
		{"pkg/node/dpu/paths/ways.go", "case r.Going && !known && t != nil", "case !known && t != nil"},
	}},
	{name: "a way that SNAP has lost at that moment is not named", tests: dpuPaths, edits: []edit{
		{"pkg/node/dpu/paths/ways.go", "t.see(path, w.clock.Now())", "_ = t"},
	}},
	{name: "a loss is forgotten when the way is found", tests: dpuPaths, edits: []edit{
		{"pkg/node/dpu/paths/ways.go", "w.clock.Since(t.brokenAt) < w.recent", "w.clock.Since(t.brokenAt) < 0"},
	}},
	{name: "a connection that was made anew between two looks is well", tests: dpuPaths, edits: []edit{
		{pathJudge, "if remade {", "if false && remade {"},
	}},
	{name: "a connection that was made anew is drained by the loss before it", tests: dpuPaths, edits: []edit{
		{pathJudge, "false, now, now", "false, cmp.Or(t.brokenSince, now), now"},
		{pathJudge, "import (", "import (\n\t\"cmp\""},
	}},
	{name: "a loss just before the driver began is none", tests: dpuPaths, edits: []edit{
		{"pkg/node/dpu/paths/ways.go", "w.clock.Since(w.began) < w.recent", "w.clock.Since(w.began) < 0"},
	}},
	{name: "the connection of an earlier epoch is lost when the vendor opens a later one", tests: dpuPaths, edits: []edit{
		{"pkg/node/dpu/paths/ways.go", "		t.connections = \"\"\n", ""},
	}},
	{name: "a vendor that opens a device is not told of", tests: "./pkg/node/dpu", edits: []edit{
		{"pkg/node/dpu/device.go", "if *p.dpu.OpenEpoch != epoch {", "if false && *p.dpu.OpenEpoch != epoch {"},
	}},
	{name: "a device is shown before its connection is seen", tests: "./pkg/node/dpu", edits: []edit{
		{"pkg/node/dpu/right.go", "if !p.dpu.Attached && granted {", "if false && granted {"},
	}},
	{name: "a connection that is lost is named", tests: "./pkg/provisioner/snap/paths", edits: []edit{
		{"pkg/provisioner/snap/paths/read.go", "path.Controller != nil && meaning(path.State) == provisioner.PathConnected", "path.Controller != nil"},
	}},
	{name: "that the storage refuses what is taken from a DPU is a loss", tests: dpuPaths, edits: []edit{
		{pathJudge, "path.State == provisioner.PathFailed && !t.going", "path.State == provisioner.PathFailed"},
	}},
	{name: "I/O that is slow has a withdrawal wait as if it were lost", tests: dpuPaths, edits: []edit{
		{pathJudge, "	t.note(t.lost || t.disconnected(path), now)", "	t.note(sign != \"\" || t.disconnected(path), now)"},
	}},

	// What moves.
	{name: "a volume moves though the storage is away for all", tests: lostPath, edits: []edit{
		{lostJudge, "	case len(f.Witnesses) == 0:", "	case len(f.Witnesses) < 0:"},
	}},
	{name: "a volume moves though its storage has no last word", tests: lostPath, edits: []edit{
		{lostJudge, "	case !f.Epochs && !f.Revokes:", "	case f.Others < 0:"},
	}},
	{name: "a volume moves at once", tests: lostPath, edits: []edit{
		{lostJudge, "	case f.Lost < f.Timeout:", "	case f.Lost < 0:"},
	}},
	{name: "a DPU that is not heard is a witness", tests: pathFence, edits: []edit{
		{lostReader, " && r.Heartbeats.DPU(node.Spec.DPUName) == nodehealth.Fresh, nil", " && r.Heartbeats.DPU(node.Spec.DPUName) != nodehealth.Fresh+\"-\", nil"},
	}},
	{name: "a DPU is a witness by its attachment alone", tests: pathFence, edits: []edit{
		{lostReader, "	return node, sees && !lost && node.Status.LostPath(a.Spec.DPUVolumeName) == nil && ", "	return node, sees && !lost && "},
	}},
	{name: "a volume moves to where the DPU is being drained", tests: "./pkg/controller/failover/lostpath", edits: []edit{
		{lostReader, "		case host.Spec.Draining() != \"\":", "		case host.Spec.Draining() == \"-\":"},
	}},
	{name: "a DPU whose SNAP is away is a witness", tests: pathFence, edits: []edit{
		{lostReader, "	sees := node.Status.DPU != nil && node.Status.DPU.SNAPReady\n", "	sees := true\n"},
	}},
	{name: "a replica without a device is a witness", tests: pathFence, edits: []edit{
		{lostReader, "|| !hasDevice(other) {", "|| !hasDevice(other) && other.Name == \"\" {"},
	}},
	{name: "a path goes before what is done about a host that is not well", tests: pathFence, edits: []edit{
		{pathMoves, "	if p.state != Healthy || ", "	if "},
	}},
	{name: "a pod that does not come back is deleted for its path", tests: pathFence, edits: []edit{
		{pathMoves, "&& !podvolume.Returns(pod) {", "&& !podvolume.Returns(pod) && pod.Name == \"\" {"},
	}},
	{name: "what the DPU has borne does not count", tests: pathFence, edits: []edit{
		{pathMoves, "since.Add(-time.Duration(lost.BorneMillis)", "since.Add(-0 * time.Duration(lost.BorneMillis)"},
	}},
	{name: "the I/O of pods that stay is ended", tests: pathFence, edits: []edit{
		{pathMoves, "len(users) > 0 && !slices.ContainsFunc(users, stays)", "len(users) > 0"},
	}},
	{name: "pods are let go before there is a receipt", tests: pathFence, edits: []edit{
		{pathMoves, "		if t.path != nil && t.over() && !p.writable(t) {", "		if t.path != nil {"},
	}},
	{name: "the storage is not asked to revoke a DPU that does not reach it", tests: fence, edits: []edit{
		{fenceAct, "	if !silent && !t.moves() || t.mirror == nil ||", "	if !silent || t.mirror == nil ||"},
	}},
	{name: "an attachment is let go before its DPU has cleared up, by nothing", tests: "./pkg/controller/hostcluster/attachment", edits: []edit{
		{"pkg/controller/hostcluster/attachment/remove.go", "writer.IsLost(claim) || !writer.OverWithoutDPU(mirror, claim)", "writer.IsLost(claim)"},
	}},
	{name: "an attachment whose path is lost is made anew", tests: pathFence, edits: []edit{
		{"pkg/controller/failover/detach/reconciler.go", "	if meta.IsStatusConditionFalse(owner.Status.Conditions, storagev1alpha1.ConditionPathHealthy) {", "	if meta.IsStatusConditionFalse(owner.Status.Conditions, \"\") {"},
	}},
}
