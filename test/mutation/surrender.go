package main

// surrenders are the checks of a DPU that gives an epoch back which its journal knows to be
// over, and of attachments that no DPUVolumeAttachment asks for any more.
var surrenders = []mutation{
	{name: "a DPU that shows the volume is taken to have given its epoch back", tests: right, edits: []edit{
		{ruleDetach, "attachment.Spec.Epoch > 0 && !attachment.Status.DPU.Attached &&\n		attachment.Status.DPU.RetiredEpoch >= attachment.Spec.Epoch\n}", "attachment.Spec.Epoch > 0 &&\n		attachment.Status.DPU.RetiredEpoch >= attachment.Spec.Epoch\n}"},
	}},
	{name: "an earlier epoch that a DPU has retired frees the claim", tests: right, edits: []edit{
		{ruleDetach, "claim.Status.Epoch <= 0 || attachment.Status.DPU.RetiredEpoch < claim.Status.Epoch", "claim.Status.Epoch <= 0"},
	}},
	{name: "what a cache shows of a DPU frees the claim", tests: fence, edits: []edit{
		{"pkg/controller/failover/detach/surrender.go", "kube.Find(ctx, r.DPU.Live, client.ObjectKeyFromObject(attachment), attachment)", "kube.Find(ctx, r.DPU.Client, client.ObjectKeyFromObject(attachment), attachment)"},
	}},
	{name: "a DPU gives an epoch back and shows the volume", tests: node, edits: []edit{
		{nodeFence, "	if err := f.endAll(ctx, p, epoch); err != nil {\n		return err\n	}\n	f.note(ctx, p, epoch)\n	return p.wait(0, \"%s\", refused)", "	f.note(ctx, p, epoch)\n	return p.wait(0, \"%s\", refused)"},
	}},
	{name: "a DPU gives an epoch back and looks only at what is on record", tests: node, edits: []edit{
		{nodeFence, "	epoch := f.journal.Highest(uid)\n	if err := f.endAll(ctx, p, epoch); err != nil {", "	epoch := f.journal.Highest(uid)\n	if err := f.end(ctx, p, epoch); err != nil {"},
		{nodeFence, "p.forgotten != 0 {", "p.forgotten < 0 {"}, // which looks as well, if the journal has the epoch as shown
	}},
	{name: "a DPU gives back less than its journal tells of", tests: node, edits: []edit{
		{nodeFence, "	epoch := f.journal.Highest(uid)\n", "	epoch := p.attachment.Spec.Epoch\n"},
	}},
	{name: "a DPU does not note what was taken from it while it was away", tests: node, edits: []edit{
		{"pkg/node/dpu/patrol/patrol.go", "	spare(left, cached)\n	if len(left) == 0 {", "	spare(left, cached)\n	if len(left) >= 0 {"},
	}},
	{name: "a DPU notes by a cache that what it shows is over", tests: node, edits: []edit{
		{"pkg/node/dpu/patrol/patrol.go", "	spare(left, live)\n", "	spare(left, live[:0])\n"},
	}},
	{name: "a DPU lets go of an attachment by a record that lacks what it shows", tests: node, edits: []edit{
		{nodeFence, "	if a.Spec.Epoch == 0 || device != \"\" && epoch <= a.Spec.Epoch {\n		return 0\n	}\n	return epoch", "	return epoch * 0"},
	}},
	{name: "what is on no record of one attachment is withdrawn from another", tests: node, edits: []edit{
		{"pkg/node/dpu/detach.go", "	if err != nil || slices.ContainsFunc(all, others) {", "	if err != nil || len(all) < 0 {"},
	}},
	{name: "a fence believes a record that lacks what the DPU shows", tests: node, edits: []edit{
		{nodeFence, "	if p.forgotten = f.forgotten(now, now.Status.DPU.DeviceName); p.forgotten != 0 {", "	if p.forgotten = 0; p.forgotten != 0 {"},
	}},
	{name: "a DPU lets go of a forgotten device before what it had sent is drained", tests: node, edits: []edit{
		{nodeFence, "	if err := f.clearAll(ctx, p, epoch); err != nil {\n		return err\n	}\n	return p.drained(f.exposures)", "	return f.clearAll(ctx, p, epoch)"},
	}},
	{name: "what a DPU has forgotten of one attachment is withdrawn from another", tests: node, edits: []edit{
		{nodeFence, "a.Name != p.attachment.Name && a.VolumeName() == p.volumeName() && a.Spec.Epoch >= epoch {", "a.Name != p.attachment.Name && a.VolumeName() == p.volumeName() && a.Spec.Epoch < epoch {"},
	}},
	{name: "a VolumeAttachment is taken back whose owner only a cache lacks", tests: sync, edits: []edit{
		{abandoned, "[]client.Reader{c.Host.Client, c.Host.Live}", "[]client.Reader{c.Host.Client}"},
	}},
	{name: "a VolumeAttachment is taken back that no DPUVolumeAttachment asked for", tests: sync, edits: []edit{
		{abandoned, "a.Annotations[storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment] != OwnerValue(owner)", "owner == nil"},
	}},
	{name: "an operator's word counts of a DPU that can withdraw what no DPUVolumeAttachment wants", tests: sync, edits: []edit{
		{abandoned, "	if !silent {\n", "	if !silent && a == nil {\n"},
	}},
	{name: "what an earlier attachment of this name has left is not ended", tests: sync, edits: []edit{
		{"pkg/controller/hostcluster/attachment/remove.go", "		if err := r.endPredecessor(ctx, attachment, mirror); err != nil {", "		if err := r.endPredecessor(ctx, attachment, mirror); err != nil && found {"},
	}},
	{name: "what was made for a later attachment of this name is ended as what an earlier one left", tests: sync, edits: []edit{
		{"pkg/controller/hostcluster/attachment/remove.go", "	if err != nil || !found || now.UID != attachment.UID {\n		return err\n	}\n	if err := kube.Delete(ctx, r.Clusters.DPU.Client, left)", "	if err != nil || !found {\n		return err\n	}\n	if err := kube.Delete(ctx, r.Clusters.DPU.Client, left)"},
	}},
	{name: "a claim that was lost does not wake those who may write", tests: fence, edits: []edit{
		{"pkg/controller/failover/detach/reconciler.go", "	for _, h := range claim.Status.Lost {\n", "	for _, h := range claim.Status.Lost[:0] {\n"},
	}},
	{name: "a pod comes to a host in the place of one that goes, for ever", tests: fence, edits: []edit{
		{"pkg/controller/failover/release.go", "	if p.core == nil || tainted(p.core) {\n		return nil\n	}\n	_, err := kube.PatchExact(ctx, r.host.Client, p.core, func(n *corev1.Node) {\n		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: moorv1alpha1.TaintReturning", "	if p.core != nil {\n		return nil\n	}\n	_, err := kube.PatchExact(ctx, r.host.Client, p.core, func(n *corev1.Node) {\n		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: moorv1alpha1.TaintReturning"},
	}},
}

const abandoned = "pkg/controller/hostcluster/abandoned.go"
