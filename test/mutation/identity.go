package main

// identity are the checks that tell one object from another of its name, and a claim from
// one that was lost.
var identity = []mutation{
	{name: "the DPU shows what was granted for an earlier attachment", tests: right, edits: []edit{
		{ruleExpose, "s.AttachmentUID != \"\" && s.AttachmentUID != attachment.UID:", "s.AttachmentUID == \"-\":"},
	}},
	{name: "an attachment that was made anew holds the claim", tests: right, edits: []edit{
		{claimState, "(!bound(claim) || claim.Status.AttachmentUID == h.UID)", "(!bound(claim) || h.UID != \"-\")"},
	}},
	{name: "an attachment that was made anew is a receipt", tests: fence, edits: []edit{
		{ruleReceipt, "	return e.Attachment != nil && Holds(claim, HolderOf(e.Attachment))\n", "	return e.Attachment != nil && named(claim, HolderOf(e.Attachment))\n"},
	}},
	{name: "an attachment that came in the place of one that goes is taken for it", tests: fence, edits: []edit{
		{"pkg/controller/failover/detach/reconciler.go", "found, err := kube.Find(ctx, r.DPU.Live, client.ObjectKeyFromObject(attachment), attachment)\n	if err != nil || !found || attachment.UID != uid || !concerns(attachment) {", "found, err := kube.Find(ctx, r.DPU.Live, client.ObjectKeyFromObject(attachment), attachment)\n	if err != nil || !found || uid == \"\" || !concerns(attachment) {"},
	}},
	{name: "what is missing on an attachment proves something of a claim of before", tests: right, edits: []edit{
		{ruleDetach, "(bound(claim) || retired(attachment, claim))", "(bound(claim) || claim != nil)"},
	}},
	{name: "an attachment is made anew while the claim is held for its name", tests: sync, edits: []edit{
		{syncGrant, "	return r.refused(ctx, p.claim, writer.Judge(p.claim, p.holder()))\n", "	if writer.HolderFor(p.claim, p.attachment.Name).DPU != \"\" {\n		return nil\n	}\n	return r.refused(ctx, p.claim, writer.Judge(p.claim, p.holder()))\n"},
	}},
	{name: "an attachment goes while the claim is held for what is gone", tests: sync, edits: []edit{
		{"pkg/controller/hostcluster/attachment/remove.go", "r.waitForProof(ctx, attachment); err != nil {", "r.waitForProof(ctx, attachment); err != nil && false {"},
	}},
	{name: "something is made for an attachment that is gone", tests: sync, edits: []edit{
		{syncGrant, "		if err := r.stillAsked(ctx, p); err != nil {\n			return err\n		}\n		p.mirror = mirrorOf", "		p.mirror = mirrorOf"},
	}},
	{name: "a successor's VolumeAttachment is ended as one that was left behind", tests: sync, edits: []edit{
		{"pkg/controller/hostcluster/attachment/request.go", "		if err := r.stillAsked(ctx, p); err != nil {\n			return err\n		}\n		if err := kube.Delete", "		if err := kube.Delete"},
	}},
	{name: "a claim of before is bound to what its DPU has not touched", tests: sync, edits: []edit{
		{claimState, "attachment.DeletionTimestamp.IsZero() && controllerutil.ContainsFinalizer(attachment, storagev1alpha1.FinalizerDPUAttachment)", "attachment.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(attachment, \"none\")"},
	}},
	{name: "a claim that was lost is made anew and granted", tests: sync, edits: []edit{
		{syncRemember, "	if err != nil || !writer.Behind(claim, known.epoch(claim)) {\n", "	if err != nil || !writer.Behind(claim, known.epoch(claim)) || p != nil {\n"},
	}},
	{name: "the host cluster's word of an epoch does not count", tests: sync, edits: []edit{
		{syncRemember, "if a.Status.Epoch > 0 && !there {", "if a.Status.Epoch > 0 && there {"},
	}},
	{name: "a volume whose claim was lost is free", tests: fence, edits: []edit{
		{"pkg/controller/failover/pass.go", "t.held() || t.lost()", "t.held()"},
	}},
	{name: "a claim that was lost takes the retired epoch for a proof", tests: right, edits: []edit{
		{ruleLost, "a.Status.DPU.Attached || a.Status.DPU.ClearedEpoch <", "a.Status.DPU.Attached || a.Status.DPU.RetiredEpoch+a.Status.DPU.ClearedEpoch <"},
	}},
	{name: "the storage is opened for a claim that has not noticed that it was lost", tests: "./pkg/controller/dpucluster/attachment", edits: []edit{
		{"pkg/controller/dpucluster/attachment/attach.go", "if writer.Behind(claim, known) {", "if writer.Behind(claim, known) && claim == nil {"},
	}},
	{name: "with a claim that was lost it is forgotten who was locked out", tests: right, edits: []edit{
		{"pkg/writer/expose.go", "max(claim.Status.RevokedEpoch(dpu), claim.Status.LostEpoch)", "claim.Status.RevokedEpoch(dpu)"},
	}},
	{name: "a claim that was lost does not say up to which epoch", tests: right, edits: []edit{
		{ruleLost, "s.Epoch, s.LostEpoch = \"\", \"\", epoch, epoch", "s.Epoch = \"\", \"\", epoch"},
	}},
	{name: "a DPU clears up by what the attachment has on record", tests: node, edits: []edit{
		{nodeFence, "		if err := f.endAll(ctx, p, epoch); err != nil {\n			return err\n		}\n		p.dpu.ClearedEpoch", "		if err := f.end(ctx, p, epoch); err != nil {\n			return err\n		}\n		p.dpu.ClearedEpoch"},
	}},
	{name: "a claim goes while it knows epochs", tests: sync, edits: []edit{
		{syncRemember, "Finalizers: []string{storagev1alpha1.FinalizerEpochs},", ""},
	}},
	{name: "an operator's word counts for ever", tests: right, edits: []edit{
		{"pkg/writer/vouch.go", "	case age >= VouchLasts:", "	case age < 0 && age > 0:"},
	}},
	{name: "an operator's word beats a DPU that can answer", tests: fence, edits: []edit{
		{"pkg/writer/vouch.go", "	case answers:", "	case age < 0 && answers:"},
	}},
	{name: "an operator's word counts beside a living host while the DPU is late", tests: fence, edits: []edit{
		{"pkg/controller/failover/pass.go", "p.silent(dpu) && (dpu != p.dpu() || p.state == BothDead || p.observation.DPU == nodehealth.Stale)", "p.silent(dpu)"},
	}},
	{name: "an operator's word need not say whom it is about", tests: fence, edits: []edit{
		{"pkg/writer/vouch.go", "o.Holder != of.DPU || o.AttachmentUID != of.AttachmentUID:", "o.Holder == \"-\":"},
	}},
}

// marks are the checks around what the host cluster remembers of the last grant.
var marks = []mutation{
	{name: "a volume is attached to a DPU that several hosts name", tests: sync, edits: []edit{
		{"pkg/controller/hostcluster/attachment/reconciler.go", "	return r.unshared(ctx, p)\n", "	return nil\n"},
	}},
	{name: "what waits for a DPU that several hosts name is not woken", tests: sync, edits: []edit{
		{"pkg/controller/hostcluster/attachment/watches.go", "		if other.Name != o.GetName() {\n", "		if other.Name == o.GetName() {\n"},
	}},
	{name: "a host is failed over by the word of a DPU that several hosts name", tests: fence, edits: []edit{
		{"pkg/controller/failover/admit.go", "err != nil || p.refused != \"\" {\n		return err\n	}\n	fleet, err := a.fleet.recent", "err != nil {\n		return err\n	}\n	fleet, err := a.fleet.recent"},
	}},
	{name: "the mark of a grant is mixed with that of another", tests: sync, edits: []edit{
		{syncRemember, "kube.PatchStatusExact(", "kube.PatchStatus("},
	}},
	{name: "the mark of a grant is written over a later one", tests: sync, edits: []edit{
		{syncRemember, "case writer.MarkedEpoch(last, nil) < epoch:", "default:"},
	}},
	{name: "a grant goes by the mark that a cache has", tests: sync, edits: []edit{
		{syncRemember, "	p.volume = live\n	return nil\n", "	_ = live\n	return nil\n"},
	}},
	{name: "a volume that is another by now is granted", tests: sync, edits: []edit{
		{syncRemember, "	case !found || live.UID != p.volume.UID:\n", "	case !found:\n"},
	}},
	{name: "a claim that was found behind just before its grant is granted", tests: sync, edits: []edit{
		{syncGrant, "	if now.ResourceVersion != claim.ResourceVersion {\n", "	if false {\n"},
	}},
	{name: "a grant is marked as over that came after the look at the claim", tests: "./pkg/controller/hostcluster/volume", edits: []edit{
		{"pkg/controller/hostcluster/volume/mark.go", "kube.PatchStatusExact(", "kube.PatchStatus("},
	}},
	{name: "a DPU learns of a grant that the host cluster does not remember", tests: sync, edits: []edit{
		{syncRemember, "	return r.mark(ctx, p, epoch)\n", "	return nil\n"},
	}},
	{name: "what the host cluster remembers of the last grant does not count", tests: right, edits: []edit{
		{ruleLost, "	case last == nil:\n", "	case last == nil || last != nil:\n"},
	}},
	{name: "an epoch that was granted twice is not noticed", tests: right, edits: []edit{
		{ruleLost, "		return last.Epoch + 1\n", "		return last.Epoch\n"},
	}},
	{name: "the DPU of the last grant is not waited for", tests: right, edits: []edit{
		{ruleLost, "last == nil || last.Over || slices", "last == nil || last != nil || slices"},
	}},
	{name: "a restored attachment speaks for a later epoch", tests: right, edits: []edit{
		{ruleLost, "m.UID == last.AttachmentUID && Seen(&m) >= last.Epoch", "m.UID == last.AttachmentUID"},
	}},
	{name: "the last grant is over without a receipt", tests: right, edits: []edit{
		{ruleLost, "Held(claim) || claim.Status.Epoch != last.Epoch", "claim.Status.Epoch != last.Epoch"},
	}},
	{name: "the last grant is over by the receipt of an epoch before", tests: right, edits: []edit{
		{ruleLost, "Held(claim) || claim.Status.Epoch != last.Epoch", "Held(claim)"},
	}},
	{name: "another DPU answers for the one that may write", tests: right, edits: []edit{
		{ruleLost, "l.Attachment == h.Attachment && l.DPU == h.DPU &&", "l.Attachment == h.Attachment &&"},
	}},
	{name: "a claim that was made anew is granted before it is noted who may write", tests: right, edits: []edit{
		{claimState, "	if Behind(claim, 0) {\n", "	if Behind(claim, 0) && to.UID == \"\" {\n"},
	}},
	{name: "a claim that is made anew does not say after which epoch", tests: sync, edits: []edit{
		{syncRemember, ", AfterEpoch: writer.MarkedEpoch(marked.Status.LastGrant, nil)}", "}"},
	}},
	{name: "a replica is made before the claim says that it was lost", tests: sync, edits: []edit{
		{syncGrant, "		claim, err := r.claimOf(ctx, p)\n		if err != nil &&", "		claim, err := r.cachedOrLive(ctx, p)\n		if err != nil &&"},
	}},
	{name: "the storage is opened while there is no claim", tests: "./pkg/controller/dpucluster/attachment", edits: []edit{
		{"pkg/controller/dpucluster/attachment/attach.go", "if !found && writer.SingleWriter(a, nil) {", "if !found && a == nil {"},
	}},
	{name: "a claim that knows less than the host cluster is free", tests: fence, edits: []edit{
		{"pkg/controller/failover/pass.go", "max(t.attachment.Status.Epoch, writer.MarkedEpoch(t.volume.Status.LastGrant, nil))", "t.attachment.Status.Epoch"},
	}},
	{name: "a DPU clears up while requests may be on their way of which nothing is on record", tests: node, edits: []edit{
		{"pkg/node/dpu/pass.go", "	if p.attachment.Status.DPU.Incarnation == \"\" {\n", "	if p.volumeID == \"\" {\n"},
	}},
	{name: "an operator's word ends an orphan whomever it is about", tests: right, edits: []edit{
		{"pkg/writer/vouch.go", "	if refused = RefuseVouch(claim, now, false); refused != \"\" {\n", "	if refused = RefuseVouch(claim, now, false); refused == \"-\" {\n"},
	}},
	{name: "an operator's word ends an orphan beside failover", tests: sync, edits: []edit{
		{"pkg/controller/hostcluster/attachment/remove.go", "	if found {\n		return kube.WaitFor(\"%s\", writer.Bereft(claim))\n	}\n	freed", "	if found && claim == nil {\n		return kube.WaitFor(\"%s\", writer.Bereft(claim))\n	}\n	freed"},
	}},
	{name: "a volume goes by an operator's word about a DPU that can answer", tests: "./pkg/controller/hostcluster/volume", edits: []edit{
		{"pkg/controller/hostcluster/volume/claim.go", "	if found {\n		_, refused", "	if found && false {\n		_, refused"},
	}},
}
