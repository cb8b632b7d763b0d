package main

// The packages whose tests have to catch what is switched off in them.
const (
	right  = "./pkg/writer"
	node   = "./pkg/node/dpu"
	fence  = "./pkg/controller/failover/..."
	sync   = "./pkg/controller/hostcluster/attachment"
	target = "./reference/blocktarget"
	vendor = "./reference/localvendor"
	snap   = "./pkg/provisioner/snap/service"
	lease  = "./pkg/node/selffence"
	access = "./internal/kube"
)

// The files that are edited more than once.
const (
	claimState   = "pkg/writer/claim.go"
	ruleGrant    = "pkg/writer/grant.go"
	ruleExpose   = "pkg/writer/expose.go"
	ruleLost     = "pkg/writer/lost.go"
	ruleReceipt  = "pkg/writer/receipt.go"
	ruleDetach   = "pkg/writer/detach.go"
	ruleLease    = "pkg/writer/lease.go"
	nodeRight    = "pkg/node/dpu/right.go"
	nodeFence    = "pkg/node/dpu/fence.go"
	nodePrepare  = "pkg/node/dpu/prepare.go"
	nodeDetach   = "pkg/node/dpu/detach.go"
	nodePasses   = "pkg/node/dpu/reconciler.go"
	nodeServices = "pkg/node/dpu/exposures/services.go"
	leaseDecide  = "pkg/node/selffence/decide.go"
	leaseKeeper  = "pkg/node/selffence/keeper.go"
	fenceLease   = "pkg/controller/failover/lease.go"
	fenceAct     = "pkg/controller/failover/fence.go"
	detachFree   = "pkg/controller/failover/detach/free.go"
	fenceLeave   = "pkg/controller/failover/detach/leave.go"
	fenceState   = "pkg/controller/failover/classify.go"
	syncGrant    = "pkg/controller/hostcluster/attachment/grant.go"
	syncRemember = "pkg/controller/hostcluster/attachment/remember.go"
	syncPromote  = "pkg/controller/hostcluster/attachment/promote.go"
	targetVolume = "reference/blocktarget/volume.go"
	vendorTarget = "reference/localvendor/grants.go"
)

// The end-to-end tests in which the proof has to see what is switched off.
const (
	cutOff = "is cut off with its DPU"
	frozen = "stands still for long"
	moves  = "runs the pod again at its replica when the host loses power"
	second = "makes a second primary wait"
)

// mutations are the checks around the right to write, each switched off.
var mutations = []mutation{
	// A DPU shows only what it has the right to.
	{name: "the DPU shows without regard to the claim", tests: node, edits: []edit{
		{ruleExpose, "	case !Held(claim) || claim.Status.Phase == \"\":\n", "	case !attachment.IsReplica():\n		return \"\"\n	case !Held(claim) || claim.Status.Phase == \"\":\n"},
	}},
	{name: "the DPU shows what another one holds", tests: right, edits: []edit{
		{ruleExpose, "case s.Holder != dpu || s.Attachment != attachment.Name:", "case false:"},
	}},
	{name: "the DPU does not compare epochs", tests: right, edits: []edit{
		{ruleExpose, "case s.Epoch != attachment.Spec.Epoch:", "case false:"},
	}},
	{name: "the DPU shows an epoch that it has retired", tests: right, edits: []edit{
		{ruleExpose, "case s.Epoch <= retired:", "case false:"},
	}},
	{name: "the DPU shows what is being fenced", tests: right, edits: []edit{
		{ruleExpose, "case claim.Status.Phase == moorv1alpha1.ClaimFencing:", "case false:"},
		{ruleExpose, "case claim.Status.Phase != moorv1alpha1.ClaimGranted:", "case false:"},
	}},
	{name: "the DPU shows a replica", tests: node, edits: []edit{
		{"pkg/node/dpu/parameters.go", "		Hidden:       p.keepsReady(),", "		Hidden:       false,"},
	}},
	{name: "the DPU reads the claim from its cache", tests: node, edits: []edit{
		{"pkg/node/dpu/attachments/store.go", "kube.Find(ctx, s.DPU.Live, types.NamespacedName{Namespace: s.Namespace, Name: volume}, claim)", "kube.Find(ctx, s.DPU.Client, types.NamespacedName{Namespace: s.Namespace, Name: volume}, claim)"},
	}},
	{name: "the DPU does not look again right before it shows", tests: node, edits: []edit{
		{nodeRight, "func (r right) confirm(ctx context.Context, p *pass) error {\n", "func (r right) confirm(ctx context.Context, p *pass) error {\n	if p != nil {\n		return nil\n	}\n"},
	}},
	{name: "the DPU shows before it has put its finalizer on", tests: node, edits: []edit{
		{nodePrepare, "	_, err := kube.AddFinalizer(ctx, r.attachments.DPU.Client, p.attachment, storagev1alpha1.FinalizerDPUAttachment)\n", "	var err error\n	_, _ = kube.StatusGrace, storagev1alpha1.FinalizerDPUAttachment\n"},
		{ruleExpose, "		controllerutil.ContainsFinalizer(now, storagev1alpha1.FinalizerDPUAttachment) &&", "		!controllerutil.ContainsFinalizer(now, \"none\") &&"},
	}},

	// A receipt of the DPU says the truth.
	{name: "the DPU retires an epoch and shows the device on", tests: node, edits: []edit{
		{nodeFence, "	for i := range recorded {\n", "	for i := range recorded[:0] {\n"},
		{nodeDetach, "	if device := p.dpu.DeviceName; device != \"\" {\n		undrained, err", "	if device := p.dpu.DeviceName; device == \"-\" {\n		undrained, err"},
	}, focus: frozen, program: "snap-node-driver", words: "one writer: "},
	{name: "the DPU lets an attachment go and shows the device on", tests: node, edits: []edit{
		{nodeDetach, "	if device := p.dpu.DeviceName; device != \"\" {\n		undrained, err", "	if device := p.dpu.DeviceName; device == \"-\" {\n		undrained, err"},
	}},
	{name: "a SNAP service that does not answer counts as one that shows nothing", tests: node, edits: []edit{
		{nodeServices, "		if err != nil && (known == \"\" || known == name) {", "		if err != nil && known == \"-\" {"},
	}},
	{name: "what SNAP accepted without effect counts as done", tests: snap, edits: []edit{
		{"pkg/provisioner/snap/service/drive.go", "			return fmt.Errorf(\"%s: the service accepted it and shows no effect: %w\", s.name, provisioner.ErrUnavailable)", "			return nil"},
	}},

	// The right to write is freed only with a receipt.
	{name: "the fence needs no receipt", tests: fence, edits: []edit{
		{ruleReceipt, "	return nil, missing(claim, e)\n", "	return receiptOf(claim, moorv1alpha1.ReceiptDPU, missing(claim, e)), \"\"\n"},
		{fenceAct, "	if !silent && !t.moves() || t.mirror == nil ||", "	if p.silent(t.holder()) || t.mirror == nil ||"},
	}, focus: cutOff, program: "snap-host-controller", words: "one writer: "},
	{name: "an epoch counts as retired when an earlier one is", tests: right, edits: []edit{
		{ruleReceipt, "	if dpu.Attached || dpu.RetiredEpoch < claim.Status.Epoch {", "	if dpu.Attached || dpu.RetiredEpoch < 0 {"},
	}},
	{name: "a detach is done while the DPU's finalizer is there", tests: right, edits: []edit{
		{ruleDetach, "	case controllerutil.ContainsFinalizer(attachment, storagev1alpha1.FinalizerDPUAttachment):\n		return retired", "	case controllerutil.ContainsFinalizer(attachment, \"none\"):\n		return retired"},
	}},
	{name: "a detach is done when an earlier epoch is retired", tests: right, edits: []edit{
		{ruleDetach, "attachment.Status.DPU.RetiredEpoch >= epoch", "attachment.Status.DPU.RetiredEpoch >= attachment.Spec.Epoch"},
	}},
	{name: "a detach is done while the device is shown", tests: right, edits: []edit{
		{ruleDetach, "	case attachment.Status.DPU.Attached:", "	case false:"},
	}},
	{name: "the storage's word counts though it does not revoke", tests: right, edits: []edit{
		{ruleReceipt, "return r.Vouched && r.Asked && r.Noticed && r.Gone", "return r.Asked && r.Noticed && r.Gone"},
	}},
	{name: "the storage's word counts though it may be asked to attach again", tests: right, edits: []edit{
		{ruleReceipt, "return r.Vouched && r.Asked && r.Noticed && r.Gone", "return r.Vouched && r.Asked && r.Gone"},
	}},
	{name: "the storage's word counts before it is given", tests: right, edits: []edit{
		{ruleReceipt, "return r.Vouched && r.Asked && r.Noticed && r.Gone", "return r.Vouched && r.Asked && r.Noticed"},
	}},
	{name: "the claim is freed without compare-and-swap", tests: fence, edits: []edit{
		{detachFree, "		err = c.Status().Update(ctx, freed)\n", "		freed.ResourceVersion = \"\"\n		err = c.Status().Update(ctx, freed)\n"},
	}},
	{name: "pods are released before the volume is free", tests: fence, edits: []edit{
		{"pkg/controller/failover/release.go", "		if t.fails && !p.writable(t) && (", "		if t.fails && ("},
	}},
	{name: "a short silence counts while others fall silent as well", tests: fence, edits: []edit{
		{fenceState, "		message = in.unripe()\n", ""},
	}},
	{name: "a kind that is not served is taken for an object that is gone", tests: access, edits: []edit{
		{"internal/kube/notfound.go", "!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)", "metav1.CauseTypeUnexpectedServerResponse != \"\""},
	}},
	{name: "a VolumeAttachment that comes late is taken for one that was deleted", tests: fence, edits: []edit{
		{"pkg/controller/failover/release.go", "			case kube.IsNotFound(err): // it may come yet", "			case kube.IsNotFound(err):\n				asked = true // it may come yet"},
	}},

	// The claim's own states allow nothing else, whatever its callers ask for.
	{name: "a claim that is held can be granted", tests: right, edits: []edit{
		{claimState, "	if Held(claim) {\n		return nil, fmt.Errorf(\"grant", "	if claim == nil {\n		return nil, fmt.Errorf(\"grant"},
	}},
	{name: "a claim that is being fenced can be fenced again, or one that is free", tests: right, edits: []edit{
		{claimState, "	if !Held(claim) || claim.Status.Phase != moorv1alpha1.ClaimGranted {\n", "	if claim.Status == nil {\n"},
	}},
	{name: "a claim can be freed with the receipt of another epoch", tests: right, edits: []edit{
		{claimState, " || receipt.Epoch != s.Epoch {", " {"},
	}},
	{name: "a claim can be freed with the receipt of another object", tests: right, edits: []edit{
		{claimState, " || receipt.AttachmentUID != s.AttachmentUID", ""},
	}},
	{name: "another's word frees a claim that is not being fenced", tests: right, edits: []edit{
		{claimState, "		return claim.Status.Phase == moorv1alpha1.ClaimFencing\n	}", "		return true\n	}"},
	}},
	{name: "a DPU that did not confirm the end is not remembered", tests: right, edits: []edit{
		{claimState, "	if receipt.Kind != moorv1alpha1.ReceiptDPU {\n", "	if receipt.Kind == \"-\" {\n"},
	}},

	// A DPU that gives a lease keeps it, or is reset.
	{name: "the watchdog is fed though the lease is over", tests: lease, edits: []edit{
		{leaseDecide, "	harmless := s.good(now) || s.clear\n", "	harmless := s.good(now) || s.clear || s.open\n"},
	}},
	{name: "a process that starts opens the watchdog at once", tests: lease, edits: []edit{
		{leaseDecide, "		open: harmless && !s.open,", "		open: !s.open,"},
	}},
	{name: "nothing is withdrawn at the end of the lease", tests: lease, edits: []edit{
		{leaseDecide, "		withdraw: !harmless && (", "		withdraw: !harmless && s.open && !s.open && ("},
	}},
	{name: "a lease is given without a watchdog", tests: lease, edits: []edit{
		{leaseDecide, "s.begun, s.offered = now, s.open && s.phase != unknown", "s.begun, s.offered = now, s.phase != unknown"},
	}},
	{name: "a lease is given while a predecessor's may stand", tests: lease, edits: []edit{
		{leaseDecide, "s.begun, s.offered = now, s.open && s.phase != unknown", "s.begun, s.offered = now, s.open"},
	}},
	{name: "the lease counts from the answer", tests: lease, edits: []edit{
		{leaseDecide, "	end := s.begun + s.duration\n", "	end := now + s.duration\n"},
	}},
	{name: "a lease that has ended begins again though something is shown", tests: lease, edits: []edit{
		{leaseDecide, "	case s.phase == lapsed && s.clear && now < end:", "	case s.phase == lapsed && now < end:"},
	}},
	{name: "a right of before the end counts after it", tests: lease, edits: []edit{
		{leaseDecide, "	if !s.good(now) || term != s.term {", "	if !s.good(now) {"},
	}},
	{name: "what SNAP said counts though the volume is shown", tests: lease, edits: []edit{
		{leaseDecide, "	if s.running == 0 && asked == s.asked {", "	if asked == s.asked {"},
	}},
	{name: "a SNAP that does not answer shows nothing", tests: lease, edits: []edit{
		{leaseKeeper, "	if shown || err != nil {\n", "	if shown {\n"},
	}},
	{name: "the watchdog is stopped while something is shown", tests: lease, edits: []edit{
		{leaseDecide, "	return s.clear || s.phase == unbound\n", "	return true\n"},
	}},
	{name: "the grace is one timeout of the watchdog", tests: lease, edits: []edit{
		{leaseKeeper, "3*float64(timeout)", "1*float64(timeout)"},
	}},
	{name: "the DPU shows without regard to its lease", tests: node, edits: []edit{
		{nodeRight, "	if p.term, ok = r.lease.Permit(); ok {\n", "	if p.term, ok = r.lease.Permit(); ok || p != nil {\n"},
		{nodeRight, "		if !ok {\n			return provisioner.Exposure{}", "		if !ok && p == nil {\n			return provisioner.Exposure{}"},
		{nodeRight, "		defer leave()\n", "		if ok {\n			defer leave()\n		}\n"},
	}},
	{name: "the lease is not looked at again right before SNAP is told", tests: node, edits: []edit{
		{nodeRight, "		if !ok {\n			return provisioner.Exposure{}", "		if !ok && p == nil {\n			return provisioner.Exposure{}"},
		{nodeRight, "		defer leave()\n", "		if ok {\n			defer leave()\n		}\n"},
	}},
	{name: "what SNAP shows and no attachment records is not withdrawn", tests: node, edits: []edit{
		{"pkg/node/dpu/exposures/singlewriter.go", "		if !ready && !many[snap.NQN(device)] {", "		if !ready && !many[snap.NQN(device)] && unread == nil {"},
	}},
	{name: "the bound is the lease alone", tests: right, edits: []edit{
		{ruleLease, "(1-skew) + float64(p.Grace))", "(1-skew))"},
	}},
	{name: "the bound does not count for clocks that differ", tests: right, edits: []edit{
		{ruleLease, "const skew = 0.001", "const skew = 0.0"},
	}},
	{name: "a lease that another program left is a promise", tests: right, edits: []edit{
		{ruleLease, " || d.Lease.Sequence != d.Sequence {", " {"},
	}},
	{name: "a renewal does not begin the wait anew", tests: fence, edits: []edit{
		{fenceLease, "!known || was.renewal != is {", "!known || was.renewal == is && was.renewal != is {"},
	}},
	{name: "a renewal that the cache has not seen does not count", tests: fence, edits: []edit{
		{fenceLease, "l.read(ctx, l.dpu.Live, t.holder())", "l.read(ctx, l.dpu.Client, t.holder())"},
	}},
	{name: "a fence goes on by a claim that the cache remembers", tests: fence, edits: []edit{
		{"pkg/controller/failover/observe.go", "if err := r.read(ctx, r.dpu.Live, t); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tr.note(t)", "if err := r.read(ctx, r.dpu.Client, t); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tr.note(t)"},
	}},
	{name: "a claim that the cache remembers as free is not read", tests: fence, edits: []edit{
		{"pkg/controller/failover/pass.go", "t.fails && p.takes() && t.held() && !t.inFencing()", "t.fails && p.takes() && !t.inFencing()"},
	}},
	{name: "a fence that has just begun goes on by a VolumeAttachment that the cache remembers", tests: fence, edits: []edit{
		{fenceAct, "	if !ends && !t.cached {\n", "	if !ends {\n"},
	}},
	{name: "a fence that begins is ended by a VolumeAttachment that the cache remembers", tests: fence, edits: []edit{
		{fenceAct, "f.targets.readMirror(ctx, f.dpu.Live, t)", "f.targets.readMirror(ctx, f.dpu.Client, t)"},
	}},
	{name: "a claim that could not be freed counts as freed", tests: fence, edits: []edit{
		{fenceAct, "	if t.held() {\n		return failure", "	if false && t.held() {\n		return failure"},
	}},
	{name: "a failover begins though the DPU cluster cannot be read", tests: fence, edits: []edit{
		{"pkg/controller/failover/failover.go", "r.targets.readLive(ctx, p); err != nil {", "r.targets.readLive(ctx, p); err != nil && p.underway {"},
	}},
	{name: "the lease of a DPU that gives none is over", tests: right, edits: []edit{
		{ruleLease, "func (l Lease) Over() bool { return l.Given && l.Left <= 0 }", "func (l Lease) Over() bool { return l.Left <= 0 }"},
	}},
	{name: "a beat that is late is accepted after a newer one", tests: "./pkg/node/heartbeat", edits: []edit{
		{"pkg/node/heartbeat/heartbeat.go", "	if h.sole || h.o.Exact {\n", "	if h == nil {\n"},
	}},

	// A host is taken for dead only by enough witnesses.
	{name: "two silent witnesses suffice", tests: fence, edits: []edit{
		{fenceState, "	case in.DPU.Silent() && in.Host.Silent() && in.Kubelet.Silent():", "	case in.DPU.Silent() && in.Host.Silent():"},
	}},
	{name: "the DPU's word counts though the host beats", tests: fence, edits: []edit{
		{fenceState, "	case in.Host == nodehealth.Fresh:\n		return HostHung, \"its DPU sees it dead", "	case in.API == \"-\":\n		return HostHung, \"its DPU sees it dead"},
	}},
	{name: "nothing is suspicious about many deaths at once", tests: fence, edits: []edit{
		{fenceState, "	message := in.Fleet.sick()\n", "	message := \"\"\n"},
	}},
	{name: "silence counts while the observer hears no node", tests: "./pkg/nodehealth", edits: []edit{
		{"pkg/nodehealth/observer.go", "	case silent >= o.timeout:", "	case now.Sub(from) >= o.timeout:"},
	}},
	{name: "a standstill of all counts as silence", tests: "./pkg/nodehealth", edits: []edit{
		{"pkg/nodehealth/observer.go", "	if now.Sub(r.heard) > o.silence/2 {", "	if now.Sub(r.heard) > o.timeout {"},
	}},
	{name: "silence wakes no pass", tests: "./pkg/nodehealth", edits: []edit{
		{"pkg/nodehealth/changes.go", "		o.tell(name, e, o.observation(e, now))\n", "		o.entry(name).told = o.observation(e, now)\n"},
	}},
	{name: "what was not told of is taken for known", tests: "./pkg/nodehealth", edits: []edit{
		{"pkg/nodehealth/changes.go", "e.observed && was != is {", "e.observed && was.HostSeen != is.HostSeen {"},
	}},
	{name: "the silence of the kubelet wakes no pass", tests: fence, edits: []edit{
		{"pkg/controller/failover/failover.go", "	before.HostUnheard, before.DPUUnheard, before.Young = ", "	before.Kubelet = after.Kubelet\n	before.HostUnheard, before.DPUUnheard, before.Young = "},
	}},
	{name: "a host that is not well waits for an event", tests: fence, edits: []edit{
		{"pkg/controller/failover/failover.go", "!p.concerned() && !p.unwell():", "!p.concerned():"},
	}},
	{name: "a heartbeat counts only if a reconciler looks", tests: "./pkg/nodehealth/listener", edits: []edit{
		{"pkg/nodehealth/listener/nodes.go", "	n.Observer.Observe(node)\n", ""},
	}},
	{name: "the report of a DPU waits until its host beats", tests: "./pkg/nodehealth/listener", edits: []edit{
		{"pkg/nodehealth/listener/nodes.go", "{ n.hearDPU(ctx, o.Name) }", "{ n.hear(ctx, o.Name) }"},
	}},
	{name: "what the Lease or the object repeats is a sign of life", tests: "./pkg/nodehealth", edits: []edit{
		{"pkg/nodehealth/observer.go", "	before := w.values[by]\n", "	by = byObject\n	before := w.values[by]\n"},
	}},
	{name: "a Lease that is read first is a sign of life", tests: "./pkg/nodehealth", edits: []edit{
		{"pkg/nodehealth/observer.go", "w.values[by] = value; before != 0 {", "w.values[by] = value; before != 0 || by == byLease {"},
	}},
	{name: "a ZeroTrust host beats by a Lease", tests: "./pkg/nodehealth", edits: []edit{
		{"pkg/nodehealth/observer.go", "	case !e.zeroTrust:", "	default:"},
	}},
	{name: "the heartbeat of the DPU before is that of the next", tests: "./pkg/nodehealth", edits: []edit{
		{"pkg/nodehealth/observer.go", "e.dpuName, e.dpu = node.Spec.DPUName, witness{}", "e.dpuName = node.Spec.DPUName"},
	}},
	{name: "a Lease of another holder counts", tests: "./pkg/nodehealth/listener", edits: []edit{
		{"pkg/nodehealth/listener/nodes.go", "ptr.Deref(l.Spec.HolderIdentity, \"\") != node {", "ptr.Deref(l.Spec.HolderIdentity, node) == \"\" {"},
	}},
	{name: "what was alive before a restart stays so unheard", tests: "./pkg/controller/nodelifecycle", edits: []edit{
		{"pkg/nodehealth/observer.go", "(e.host.first, e.dpu.first)) < o.timeout+o.silence/2\n", "(e.host.first, e.dpu.first)) < 1000*o.timeout\n"},
	}},
	{name: "a host that was never heard is called alive", tests: "./pkg/controller/nodelifecycle", edits: []edit{
		{"pkg/controller/nodelifecycle/decide.go", "	if unheard && b == nodehealth.Quiet {\n", "	if unheard && b == \"-\" {\n"},
	}},
	{name: "a host is called ready by what was not heard", tests: "./pkg/controller/nodelifecycle", edits: []edit{
		{"pkg/controller/nodelifecycle/decide.go", " && (hostStands || dpuStands) && ", " && false && (hostStands || dpuStands) && "},
	}},
	{name: "one missed look is death", tests: "./pkg/node/hostprobe", edits: []edit{
		{"pkg/node/hostprobe/decide.go", "since+Interval/2 < limits.Timeout || o.misses < limits.Misses", "since < 0"},
	}},

	// The right to write is granted only if it is free.
	{name: "the claim is granted while another holds it", tests: sync, edits: []edit{
		{ruleGrant, "	case status.Phase == moorv1alpha1.ClaimFree:\n", "	case status.Attachment != h.Attachment:\n"},
		{claimState, "	if Held(claim) {\n		return nil, fmt.Errorf(\"grant", "	if claim == nil {\n		return nil, fmt.Errorf(\"grant"},
	}, focus: second, program: "snap-host-controller", words: "one writer: the second primary waits"},
	{name: "an epoch is granted twice", tests: right, edits: []edit{
		{ruleGrant, "Epoch: status.Epoch + 1}", "Epoch: max(1, status.Epoch)}"},
		{claimState, "	s.Epoch++\n", "	s.Epoch = max(1, s.Epoch)\n"},
	}},
	{name: "the claim is granted without compare-and-swap", tests: sync, edits: []edit{
		{syncGrant, "		// try at once, one fails.\n		err = r.Clusters.DPU.Client.Status().Update(ctx, after)\n", "		after.ResourceVersion = \"\"\n		err = r.Clusters.DPU.Client.Status().Update(ctx, after)\n"},
	}},
	{name: "a cached claim counts though its epoch is not the DPU's", tests: sync, edits: []edit{
		{ruleGrant, " && claim.Status.Epoch == epoch\n", " && epoch >= 0\n"},
	}},
	{name: "a cached claim counts for a replica", tests: sync, edits: []edit{
		{syncGrant, "	return p.begun() && writer.Settled(", "	return writer.Settled("},
	}},
	{name: "a cached claim that is being fenced counts as granted", tests: right, edits: []edit{
		{ruleGrant, "	return Holds(claim, h) && claim.Status.Phase == moorv1alpha1.ClaimGranted && ", "	return Holds(claim, h) && "},
	}},
	{name: "the claim is granted to an attachment that is going", tests: sync, edits: []edit{
		{syncGrant, "	if !stays {\n", "	if !stays && p == nil {\n"},
	}},
	{name: "a replica is promoted early though a primary waits", tests: sync, edits: []edit{
		{syncPromote, "	return !rival, err\n", "	return rival || !rival, err\n"},
	}},
	{name: "a replica is promoted early for a pod that is being deleted", tests: sync, edits: []edit{
		{syncPromote, "	used, err := r.Users.known(ctx, spec.DPUNodeName, spec.DPUVolumeName)\n", "	used, err := r.Users.any(ctx, spec.DPUNodeName, spec.DPUVolumeName)\n"},
		{syncGrant, "r.Users.lasting(ctx", "r.Users.any(ctx"},
	}},
	{name: "a replica is promoted early for a pod that the cache alone has", tests: sync, edits: []edit{
		{syncGrant, "r.Users.lasting(ctx", "r.Users.known(ctx"},
	}},
	{name: "an early promotion that was never asked for is not taken back", tests: sync, edits: []edit{
		{syncPromote, "	p.orphaned, err = r.promotedEarly(ctx, p)\n", ""},
	}},
	{name: "it is taken back though its host has just asked", tests: sync, edits: []edit{
		{"pkg/controller/hostcluster/attachment/reconciler.go", "kube.DeleteExact(ctx", "kube.Delete(ctx"},
	}},
	{name: "a replica that was promoted early is not fenced", tests: fence, edits: []edit{
		{"pkg/controller/failover/observe.go", " && !t.promoted() && !t.held() {", " {"},
	}},

	// What is taken back is what was refused.
	{name: "a request is taken back though it was granted meanwhile", tests: "./pkg/provisioner/dpf", edits: []edit{
		{"pkg/provisioner/dpf/attachment/exhausted.go", "kube.DeleteExact(ctx", "kube.Delete(ctx"},
	}},
	{name: "a request that another has made is taken back", tests: "./pkg/provisioner/dpf", edits: []edit{
		{"pkg/provisioner/dpf/attachment/attachments.go", "asked.made && isExhausted(o)", "isExhausted(o)"},
	}},

	// A detach of the reference vendor is a revocation.
	{name: "the target answers a revocation and drops no session", tests: target, edits: []edit{
		{targetVolume, "		if node == \"\" || n == node {", "		if n == \"\" {"},
	}, focus: cutOff, program: "local-vendor", words: "one writer: "},
	{name: "the target answers a revocation while I/O is in flight", tests: target, edits: []edit{
		{targetVolume, "	for _, x := range gone {\n		x.gate.Fence()\n", "	for _, x := range gone {\n"},
	}},
	{name: "the target serves a new connection while I/O of the old one is in flight", tests: target, edits: []edit{
		{targetVolume, "		old.gate.Fence()\n", ""},
	}},
	{name: "the target takes any token", tests: target, edits: []edit{
		{targetVolume, "	if !g.opens(e.Token) {\n", "	if e.Token == \"-\" {\n"},
	}},
	{name: "the vendor detaches in its books alone", tests: vendor, edits: []edit{
		{vendorTarget, "	if err := s.target.Revoker.Revoke(ctx, volumeID, node); err != nil {", "	if err := ctx.Err(); err != nil {"},
	}, focus: cutOff, program: "local-vendor", words: "one writer: "},
	{name: "the target lets a node in whose right is being taken back", tests: vendor, edits: []edit{
		{vendorTarget, "	case h.Revoking:\n		return none", "	case node == \"-\":\n		return none"},
	}},
	{name: "the vendor is asked to detach while the DPU still uses the volume", tests: "./pkg/controller/dpucluster/attachment", edits: []edit{
		{"pkg/controller/dpucluster/attachment/detach.go", "	if controllerutil.ContainsFinalizer(a, storagev1alpha1.FinalizerDPUAttachment) {", "	if controllerutil.ContainsFinalizer(a, \"none\") {"},
	}},
	{name: "an attachment goes though the vendor has not detached", tests: "./pkg/controller/attacher", edits: []edit{
		{"pkg/controller/attacher/detach.go", "		nodeID, err := r.unpublish(ctx, sv)\n		if err != nil {\n			return err\n		}\n", "		nodeID, _ := r.unpublish(ctx, sv)\n"},
	}},
}
