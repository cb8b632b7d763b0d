package main

// The files that are edited more than once.
const (
	nodeRecord  = "pkg/node/dpu/exposures/incarnation.go"
	nodeShow    = "pkg/node/dpu/show.go"
	nodePass    = "pkg/node/dpu/pass.go"
	svDetach    = "pkg/controller/attacher/detach.go"
	nodeJournal = "pkg/node/dpu/journal/journal.go"

	failoverRequest = "pkg/controller/failover/classify.go"
)

// evidence are checks of what a receipt rests on beside the API: which process showed
// a device, and whether it was there to the end.
var evidence = []mutation{
	{name: "a SNAP service on record that has no socket is not asked", tests: node, edits: []edit{
		{nodeRecord, "	return e.mayShow(shown) && e.services.add(shown.Provider)", "	return false"},
	}},
	{name: "a SNAP service of an earlier boot is asked for the way of a device", tests: "./pkg/node/dpu/exposures", edits: []edit{
		{nodeRecord, "if e.mayShow(shown) {", "if true {"},
	}},
	{name: "a SNAP service on record counts as ended while its machine runs", tests: node, edits: []edit{
		{nodeRecord, "boot != \"\" && s.boot != \"\" && boot != s.boot", "boot != \"\" && s.boot != \"\""},
	}},
	{name: "the DPU shows by a service that is not on record", tests: node, edits: []edit{
		{nodeShow, "	p.dpu.Provider, p.dpu.Incarnation = service, now\n	return p.outdated()", "	p.dpu.Provider, p.dpu.Incarnation = service, now\n	return nil"},
		{nodeRight, "now.Status.DPU.Provider == p.dpu.Provider && ", ""},
	}},
	{name: "the DPU retires an epoch right after a crash of SNAP", tests: node, edits: []edit{
		{nodePass, "	if left <= 0 {", "	if left >= 0 {"},
	}},
	{name: "a SNAP service may end during the withdrawal", tests: node, edits: []edit{
		{nodeRecord, "before != shown.Incarnation || before != e.Incarnation(shown.Provider)", "before != shown.Incarnation"},
	}},
	{name: "what the next SNAP shows anew counts as drained", tests: node, edits: []edit{
		{nodeShow, "\t\tp.ended(&p.dpu, p.leftBy(now))\n", ""},
	}},
	{name: "an attachment is let go while requests are on their way", tests: node, edits: []edit{
		{nodePasses, "	case p.deleting && err == nil:", "	case p.deleting:"},
	}},
	{name: "a device of which no SNAP service is on record counts as drained", tests: node, edits: []edit{
		{nodePass, "on.Provider == \"\":\n		p.undrained = append(p.undrained, unknown)", "on.Provider == \"\":\n		_ = unknown"},
	}},
	{name: "the drain counts from before a restart of the driver", tests: node, edits: []edit{
		{"pkg/node/dpu/exposures/drain.go", "		since = now\n", "		since = now.Add(-d.bound)\n"},
	}},
	{name: "what another attachment has left on its way does not count", tests: node, edits: []edit{
		{nodePass, "	if on.Undrained != \"\" {", "	if on.Undrained == \"-\" {"},
	}},
	{name: "that the vendor's request is gone counts as its word", tests: right, edits: []edit{
		{ruleReceipt, " || !e.Storage.revoked() || !confirmed(e.Attachment) {", " || !e.Storage.revoked() {"},
		{ruleReceipt, "claim.Status.Holder, e.Storage.Driver, e.Attachment.Status.Revocation.NodeID)", "claim.Status.Holder, e.Storage.Driver, e.Attachment.Name)"},
	}},
	{name: "the word of the vendor counts for an attachment made anew", tests: right, edits: []edit{
		{ruleReceipt, " && a.UID != \"\" && a.Status.Revocation.AttachmentUID == a.UID", ""},
	}},
	{name: "the attacher says that it revoked, and may be asked to attach again", tests: attacher, edits: []edit{
		{ruleReceipt, " && a.Status.StorageDetaching", ""},
	}},
	{name: "the attacher lets go before it has said that it revoked", tests: attacher, edits: []edit{
		{svDetach, "		if err := r.confirm(ctx, sv, nodeID); err != nil {\n			return err\n		}\n", "		defer func() { _ = r.confirm(ctx, sv, nodeID) }()\n"},
	}},
	{name: "the DPU shows an epoch that is over by its journal", tests: node, edits: []edit{
		{nodeJournal, "	if epoch > e.Retired && epoch >= e.Shown {", "	if e.Name != \"-\" {"},
	}},
	{name: "a journal that cannot be read counts as an empty one", tests: node + "/journal", edits: []edit{
		{nodeJournal, "		return j.broken\n", "		return nil\n"},
	}},
	{name: "a journal that was changed counts", tests: node + "/journal", edits: []edit{
		{nodeJournal, "	case f.Sum != sum(f.Volumes):", "	case f.Sum == \"\":"},
	}},
	{name: "the DPU shows before its journal is on the disk", tests: node, edits: []edit{
		{nodeRight, "p.attachment.Spec.Epoch); err != nil {", "p.attachment.Spec.Epoch); err != nil && err == nil {"},
	}},
	{name: "the journal does not learn what the DPU retires", tests: node, edits: []edit{
		{nodeFence, "	if err := j.Retire(uid, p.volumeName(), p.dpu.RetiredEpoch); err != nil {", "	if err := j.Broken(); err != nil && uid == \"-\" {"},
	}},
}

const failoverClassify, failoverAdmit = "pkg/controller/failover/classify.go", "pkg/controller/failover/admit.go"

// living are the checks that spare hosts that live.
var living = []mutation{
	{name: "a kubelet that renews does not speak against the DPU's word", tests: fence, edits: []edit{
		{failoverClassify, "	case in.Kubelet == nodehealth.Fresh:", "	case in.Kubelet == nodehealth.Beat(\"-\"):"},
	}},
	{name: "a beat in the silence that a DPU takes for death does not count", tests: "./pkg/nodehealth", edits: []edit{
		{"pkg/nodehealth/observer.go", "w.last.After(e.deadAt.Add(-linkSilence))", "w.last.After(e.deadAt)"},
	}},
	{name: "any beat from before the DPU's word counts", tests: "./pkg/nodehealth", edits: []edit{
		{"pkg/nodehealth/observer.go", "return w.last.After(e.deadAt.Add(-linkSilence))", "return !w.last.IsZero()"},
	}},
	{name: "I/O that ends shows that a host lives", tests: "./pkg/node/hostprobe", edits: []edit{
		{"pkg/node/hostprobe/work.go", "path.Completed-was.Completed > was.InFlight", "path.Completed > was.Completed"},
	}},
	{name: "I/O whose depth is not known shows that a host lives", tests: "./pkg/node/hostprobe", edits: []edit{
		{"pkg/node/hostprobe/work.go", "was.InFlight >= 0 && ", ""},
	}},
	{name: "I/O of a host as it died shows that it lives", tests: "./pkg/node/hostprobe", edits: []edit{
		{"pkg/node/hostprobe/decide.go", "o.worked.Sub(o.silent) >= limits.Timeout/4 && ", ""},
	}},
	{name: "a host that did I/O once lives for ever", tests: "./pkg/node/hostprobe", edits: []edit{
		{"pkg/node/hostprobe/decide.go", " && now.Sub(o.worked) < pause", ""},
	}},
	{name: "I/O of a silent host shows nothing", tests: "./pkg/node/hostprobe", edits: []edit{
		{"pkg/node/hostprobe/decide.go", "p.Worked.After(o.worked)", "false"},
	}},
	{name: "a host that is not probed reads nothing", tests: mountWatcher, edits: []edit{
		{"pkg/node/csi/deadmounts/touch.go", "			w.touch(s)", "			_ = s"},
	}},
	{name: "a read that hangs is repeated", tests: mountWatcher, edits: []edit{
		{"pkg/node/csi/deadmounts/touch.go", "	if w.touched[path] {", "	if false {"},
	}},
	{name: "a device that was read once is not read again", tests: mountWatcher, edits: []edit{
		{"pkg/node/csi/deadmounts/touch.go", "		delete(w.touched, path)", "		_ = path"},
	}},
	{name: "a host that is not probed has one sign of life", tests: "./pkg/node/hostprobe", edits: []edit{
		{"pkg/node/hostprobe/unprobed.go", "	u.asks = append(u.asks, c)", "	if u.asks == nil {\n\t\tu.asks = append(u.asks, c)\n\t}"},
	}},
	{name: "a host that is not probed says nothing", tests: "./pkg/node/hostprobe", edits: []edit{
		{"pkg/node/hostprobe/unprobed.go", "return now.Before(u.until)", "return false"},
	}},
	{name: "a beat of the kubelet from before the DPU's word counts", tests: "./pkg/nodehealth", edits: []edit{
		{"pkg/nodehealth/observer.go", "out.Host, out.Kubelet = e.since(e.host, out.Host), e.since(e.kubelet, out.Kubelet)", "out.Host = e.since(e.host, out.Host)"},
	}},
	{name: "a rack is believed dead while its kubelets are heard", tests: fence, edits: []edit{
		{failoverClassify, " && in.Host.Silent() && in.Kubelet.Silent()\n", " && in.Host.Silent()\n"},
	}},
	{name: "all hosts at once are believed dead", tests: fence, edits: []edit{
		{failoverClassify, "if in.unanimous() && in.Fleet.Dead < in.Fleet.Nodes {", "if in.unanimous() {"},
	}},
	{name: "a rack is believed dead though the API contradicts DPUs", tests: fence, edits: []edit{
		{failoverClassify, "		message = in.Fleet.contradicted()\n", "		message = \"\"\n"},
	}},
	{name: "a series of failovers is not stopped", tests: fence, edits: []edit{
		{failoverAdmit, "	if b.Window <= 0 || !tooMany", "	if b.Window >= 0 || !tooMany"},
	}},
	{name: "whose failover has ended counts no more in a series", tests: fence, edits: []edit{
		{failoverAdmit, "distinct(b.Window, now, fleet.begun, admitted)", "distinct(b.Window, now, fleet.begun, admitted.without(fleet.ended))"},
	}},
	{name: "a series is forgotten after a minute", tests: fence, edits: []edit{
		{failoverAdmit, "max(time.Minute, budget.Window))", "time.Minute)"},
	}},
}

// requests are the checks that keep a person's request from being a proof, or from taking
// another host than the one that was meant.
var requests = []mutation{
	{name: "a request counts for whatever card the host has", tests: fence, edits: []edit{
		{failoverRequest, "	case r.DPUName != p.dpu():", "	case r.DPUName == \"\":"},
	}},
	{name: "a request counts for whatever boot of the host", tests: fence, edits: []edit{
		{failoverRequest, "	case r.BootID != p.boot():", "	case r.BootID == \"-\":"},
	}},
	{name: "a request counts for ever", tests: fence, edits: []edit{
		{failoverRequest, "	case age >= writer.VouchLasts && !p.begunBy(r):", "	case age < -writer.VouchLasts && !p.begunBy(r):"},
	}},
	{name: "a request counts for a host that is well", tests: fence, edits: []edit{
		{failoverRequest, "	case p.state == Healthy:", "	case p.state == \"\":"},
	}},
	{name: "a request counts before the host is known", tests: fence, edits: []edit{
		{failoverRequest, "p.state == Unknown && p.observation.Host != nodehealth.Stale", "p.state == Unknown && p.observation.Host == nodehealth.Beat(\"-\")"},
	}},
	{name: "a request that was begun expires", tests: fence, edits: []edit{
		{failoverRequest, " && !p.begunBy(r):", ":"},
	}},
	{name: "a request is carried out twice", tests: fence, edits: []edit{
		{failoverRequest, "	case p.carriedOut(r):", "	case p.carriedOut(r) && p.underway:"},
	}},
	{name: "a request is a receipt", tests: fence, edits: []edit{
		{fenceAct, "	e.Operator, e.Refused = p.vouch(t)\n", "	e.Operator, e.Refused = p.vouch(t)\n	e.Operator = e.Operator || p.requested()\n"},
		{"pkg/writer/receipt.go", "	if !e.Operator || claim.Spec.OperatorReceipt == nil || claim.Status.Epoch <= 0 {\n		return \"\"\n	}\n	return vouchMessage(claim.Spec.OperatorReceipt, claim.Status.Holder)", "	if !e.Operator || claim.Status.Epoch <= 0 {\n		return \"\"\n	}\n	return claim.Status.Holder"},
	}},
}

// The files of the epoch's way to the medium that are edited more than once.
const (
	ruleMedium   = "pkg/writer/medium.go"
	targetIO     = "reference/blocktarget/session.go"
	attacherWord = "pkg/controller/attacher/fence.go"
	nodeDevice   = "pkg/node/dpu/device.go"
)

// medium are the checks by which the storage itself keeps epochs apart, each switched
// off.
var medium = []mutation{
	// The rules.
	{name: "the storage's word about the epoch itself is a receipt", tests: right, edits: []edit{
		{ruleReceipt, "FencedBelow(e.Attachment) <= claim.Status.Epoch {", "FencedBelow(e.Attachment) < claim.Status.Epoch {"},
	}},
	{name: "the storage's word about another attachment counts", tests: right, edits: []edit{
		{ruleMedium, "a.UID != \"\" && f.AttachmentUID == a.UID {", "a.UID != \"\" {"},
	}},
	{name: "a receipt of the medium ends what is not being fenced", tests: right, edits: []edit{
		{claimState, "	case moorv1alpha1.ReceiptDPU:\n		return claim", "	case moorv1alpha1.ReceiptDPU, \"Medium\":\n		return claim"},
		{claimState, "	case moorv1alpha1.ReceiptMedium, moorv1alpha1.ReceiptStorage,", "	case moorv1alpha1.ReceiptStorage,"},
	}},
	{name: "a grant is usable by the storage's word about an earlier epoch", tests: right, edits: []edit{
		{ruleMedium, "FencedBelow(a) >= a.Spec.Epoch {", "FencedBelow(a) > 0 {"},
	}},
	{name: "the storage is asked to shut out a device that is shown and not open under its epoch", tests: right, edits: []edit{
		{ruleMedium, " && (!dpu.Attached || *dpu.OpenEpoch >= a.Spec.Epoch) {", " && dpu.OpenEpoch != nil {"},
	}},
	{name: "the storage is asked to shut out who has the right to write", tests: right, edits: []edit{
		{ruleMedium, " || claim.Status.Phase != moorv1alpha1.ClaimFencing || ", " || "},
	}},

	// Those who act by them.
	{name: "the attachment goes before the storage is asked", tests: fence, edits: []edit{
		{fenceAct, "	if err := f.ask(ctx, t); err != nil {\n		return err\n	}\n", "	defer func() { _ = f.ask(ctx, t) }()\n"},
	}},
	{name: "the attacher writes that the storage has fenced before it was asked", tests: attacher, edits: []edit{
		{attacherWord, "	if err := r.Driver.Fence(bounded, handle, epoch); err != nil {\n		return err\n	}\n", "	_ = r.Driver.Fence(bounded, handle, epoch)\n"},
	}},
	{name: "the attacher fences by what the cache shows", tests: attacher, edits: []edit{
		{attacherWord, "kube.Find(ctx, r.DPU.Live, ", "kube.Find(ctx, r.DPU.Client, "},
	}},
	{name: "the DPU shows before the storage has fenced", tests: node, edits: []edit{
		{nodeRight, "		p.refused = writer.Unfenced(now)\n", "		_ = writer.Unfenced(now)\n"},
	}},
	{name: "an epoch that the storage refuses is kept", tests: "./pkg/node/dpu", edits: []edit{
		{"pkg/node/dpu/fence.go", "	if !errors.Is(failure, provisioner.ErrPrecondition) {", "	if !errors.Is(failure, provisioner.ErrPrecondition) || p != nil {"},
	}},
	{name: "an epoch is given back for any failure to open its device", tests: "./pkg/node/dpu", edits: []edit{
		{"pkg/node/dpu/fence.go", "	if !errors.Is(failure, provisioner.ErrPrecondition) {", "	if failure == nil {"},
	}},
	{name: "the DPU shows a replica that was not opened under the epoch", tests: node, edits: []edit{
		{"pkg/node/dpu/show.go", " || p.small() || p.behind() {", " || p.small() {"},
	}},
	{name: "the DPU withdraws what was shown before its vendor knew epochs", tests: node, edits: []edit{
		{nodeRight, " && !p.shown() {", " {"},
	}},
	{name: "a device that was made anew is taken for open under its epoch", tests: node, edits: []edit{
		{nodeDevice, "	if p.refused != \"\" || p.replica() {\n		return nil\n	}\n	epoch :=", "	if p.refused != \"\" || p.replica() || *p.dpu.OpenEpoch == p.attachment.Spec.Epoch {\n		return nil\n	}\n	epoch :="},
		{nodeDevice, "		p.dpu.OpenEpoch = new(int64) // it may be a new one, of the same name\n", "		_ = p.dpu.OpenEpoch\n"},
	}},

	// The reference storage.
	{name: "the target opens a volume under an epoch that is over", tests: target, edits: []edit{
		{targetVolume, "	if e.Epoch > 0 && e.Epoch < g.Fenced {", "	if e.Epoch < 0 {"},
	}},
	{name: "what has no epoch changes a volume that was fenced", tests: target, edits: []edit{
		{targetVolume, "	if e.Epoch < g.Fenced {\n", "	if e.Epoch < 0 {\n"},
	}},
	{name: "the target answers a fence while a change is in flight", tests: target, edits: []edit{
		{targetVolume, "		x.changes.Fence()\n", ""},
		{targetVolume, "			x.gate.Fence()\n			delete", "			delete"},
	}},
	{name: "the target answers a fence and lets what is open go on", tests: target, edits: []edit{
		{targetVolume, "		x.changes.Shut()\n		over", "		over"},
		{targetVolume, "		x.changes.Fence()\n", ""},
	}},
	{name: "changes pass the fence of what has no epoch", tests: target, edits: []edit{
		{targetIO, "		if !s.changes.Enter() {\n			return nil, true, syscall.EPERM\n		}\n", "		_ = s.changes.Enter()\n"},
	}},
	{name: "the vendor asks the target before the epoch is on record", tests: vendor, edits: []edit{
		{vendorTarget, "	if epoch > have.Fenced {\n", "	if epoch > have.Fenced && epoch < 0 {\n"},
	}},
	{name: "a fence of an earlier epoch takes a later one back", tests: vendor, edits: []edit{
		{vendorTarget, "	if epoch > have.Fenced {\n", "	if epoch != have.Fenced {\n"},
	}},
}
