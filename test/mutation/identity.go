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
		{"pkg/controller/hostcluster/attachment/remember.go", "	if err != nil || !writer.Behind(claim, known.epoch()) {\n", "	if err != nil || !writer.Behind(claim, known.epoch()) || p != nil {\n"},
	}},
	{name: "the host cluster's word of an epoch does not count", tests: sync, edits: []edit{
		{"pkg/controller/hostcluster/attachment/remember.go", "if a.Status.Epoch > 0 && !there {", "if a.Status.Epoch > 0 && there {"},
	}},
	{name: "a volume whose claim was lost is free", tests: fence, edits: []edit{
		{"pkg/controller/failover/release.go", "t.held() || t.lost()", "t.held()"},
	}},
	{name: "a claim that was lost takes the retired epoch for a proof", tests: right, edits: []edit{
		{"pkg/writer/lost.go", "a.Status.DPU.Attached || a.Status.DPU.ClearedEpoch <", "a.Status.DPU.Attached || a.Status.DPU.RetiredEpoch+a.Status.DPU.ClearedEpoch <"},
	}},
	{name: "the storage is opened for a claim that has not noticed that it was lost", tests: "./pkg/controller/dpucluster/attachment", edits: []edit{
		{"pkg/controller/dpucluster/attachment/attach.go", "if writer.Behind(claim, known) {", "if writer.Behind(claim, known) && claim == nil {"},
	}},
	{name: "with a claim that was lost it is forgotten who was locked out", tests: right, edits: []edit{
		{"pkg/writer/expose.go", "max(claim.Status.RevokedEpoch(dpu), claim.Status.LostEpoch)", "claim.Status.RevokedEpoch(dpu)"},
	}},
	{name: "a claim that was lost does not say up to which epoch", tests: right, edits: []edit{
		{"pkg/writer/lost.go", "s.Epoch, s.LostEpoch = \"\", \"\", epoch, epoch", "s.Epoch = \"\", \"\", epoch"},
	}},
	{name: "a DPU clears up by what the attachment has on record", tests: node, edits: []edit{
		{nodeFence, "		if err := f.clearAll(ctx, p, epoch); err != nil {\n			return err\n		}\n		if err := f.end(", "		if err := f.end("},
	}},
	{name: "a claim goes while it knows epochs", tests: sync, edits: []edit{
		{syncGrant, "Finalizers: []string{storagev1alpha1.FinalizerEpochs},", ""},
	}},
	{name: "an operator's word counts for ever", tests: right, edits: []edit{
		{"pkg/writer/vouch.go", "	case age >= VouchLasts:", "	case age < 0 && age > 0:"},
	}},
	{name: "an operator's word beats a DPU that can answer", tests: fence, edits: []edit{
		{"pkg/writer/vouch.go", "	case answers:", "	case age < 0 && answers:"},
	}},
	{name: "an operator's word need not say whom it is about", tests: fence, edits: []edit{
		{"pkg/writer/vouch.go", "o.Holder != of.DPU || o.AttachmentUID != of.AttachmentUID:", "o.Holder == \"-\":"},
	}},
}
