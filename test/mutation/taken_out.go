package main

const (
	ruleSilent = "pkg/writer/silent.go"
	syncRemove = "pkg/controller/hostcluster/attachment/remove.go"
	detaching  = "./pkg/controller/failover/detach"
)

// takenOut are the rules by which nothing waits for ever for a DPU that was taken out of its host.
var takenOut = []mutation{
	{name: "what a silent DPU was never granted waits for it", tests: detaching, edits: []edit{
		{fenceLeave, "!recorded && !writer.NeverGranted(a, claim) && (", "!recorded && ("},
	}},
	{name: "what was granted is taken for what never was", tests: right, edits: []edit{
		{ruleSilent, "	return Detaching(attachment) && attachment.Spec.Epoch == 0 &&", "	return Detaching(attachment) &&"},
	}},
	{name: "what is shown is taken for what was never granted", tests: right, edits: []edit{
		{ruleSilent, "attachment.Status.DPU.Epoch == 0 && !attachment.Status.DPU.Attached &&", "attachment.Status.DPU.Epoch == 0 &&"},
	}},
	{name: "an epoch of which only the DPU tells does not count", tests: detaching, edits: []edit{
		{ruleSilent, "attachment.Status.DPU.Epoch == 0 && !attachment.Status.DPU.Attached &&", "!attachment.Status.DPU.Attached &&"},
	}},
	{name: "the holder of the claim is taken for one that was never granted it", tests: right, edits: []edit{
		{ruleSilent, "!Behind(claim, 0) && !Holds(claim, HolderOf(attachment)) && lostHolder", "!Behind(claim, 0) && lostHolder"},
	}},
	{name: "by a claim that was made anew, nothing was ever granted", tests: detaching, edits: []edit{
		{ruleSilent, "claim != nil && !Behind(claim, 0) && !Holds", "claim != nil && !Holds"},
	}},
	{name: "one who may write of a lost claim is taken for one that was never granted it", tests: right, edits: []edit{
		{ruleSilent, " && lostHolder(claim, attachment.Name, attachment.UID) < 0\n", "\n"},
	}},
	{name: "a DPU that was never granted anything has nothing to clear up", tests: right, edits: []edit{
		{ruleSilent, "		epoch = out.Status.Epoch // 0 if no DPU has ever shown anything\n", ""},
	}},
	{name: "what was granted meanwhile is let go", tests: detaching, edits: []edit{
		{fenceLeave, "		if err := r.DPU.Client.Status().Update(ctx, after); err != nil {", "		after.ResourceVersion = \"\"\n		if err := r.DPU.Client.Status().Update(ctx, after); err != nil {"},
	}},
	{name: "a lost claim of which only attachments that go are left stays so", tests: sync, edits: []edit{
		{syncRemove, "	silent, err := r.bySilent(ctx, attachment, mirror)\n", "	silent, err := \"\", error(nil)\n"},
	}},
	{name: "a lost claim of which only what an earlier attachment has left tells stays so", tests: sync, edits: []edit{
		{syncRemove, "	silent, err := r.bySilent(ctx, attachment, left)\n", "	silent, err := \"\", error(nil)\n"},
	}},
	{name: "the claim of each attachment that goes is looked at", tests: sync, edits: []edit{
		{syncRemove, "	if r.Silent == nil || !r.Silent(mirror.Spec.NodeName) {", "	if r.Silent == nil {"},
	}},
	{name: "of a DPU that is silent it is told what it has said before", tests: sync, edits: []edit{
		{syncRemove, "cmp.Or(message, silent, saidByDPU(mirror))", "cmp.Or(message, saidByDPU(mirror), silent)"},
	}},
	{name: "a person is asked to vouch while a failover takes the volume", tests: right, edits: []edit{
		{ruleSilent, "	case Holds(claim, HolderOf(a)) && claim.Status.Phase == moorv1alpha1.ClaimGranted:", "	case Holds(claim, HolderOf(a)):"},
	}},
	{name: "a person is told to have what holds a right to write go", tests: right, edits: []edit{
		{ruleSilent, "	case SingleWriter(a, nil) || a.DeletionTimestamp", "	case a.DeletionTimestamp"},
	}},
	{name: "it is not looked at again whether the DPU of what goes has fallen silent", tests: sync, edits: []edit{
		{syncRemove, "ctrl.Result{RequeueAfter: cmp.Or(outcome.RetryAfter, silenceAgain)}", "ctrl.Result{}"},
	}},
}
