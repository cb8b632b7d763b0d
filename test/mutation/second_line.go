package main

// kubeWrite is how objects are written.
const kubeWrite = "internal/kube/write.go"

// secondLine are checks that matter only while a cache is behind, while something
// is replaced by its like, or behind another check.
var secondLine = []mutation{
	{name: "what is shown again goes with what was left of it", tests: "./pkg/provisioner/snap", edits: []edit{
		{"pkg/provisioner/snap/nvme/sweep.go", "p.subsystem == nil || !remains(*p.subsystem) {", "p.subsystem == nil {"},
	}},
	{name: "the storage is asked to revoke a DPU that is heard", tests: fence, edits: []edit{
		{fenceAct, "	if !silent && !t.moves() || t.mirror == nil ||", "	if t.mirror == nil ||"},
	}},
	{name: "the holds of a DPU that is heard are taken off", tests: fence, edits: []edit{
		{fenceAct, "!p.letsGo(t) ||", "t.attachment.DeletionTimestamp.IsZero() ||"},
	}},
	{name: "a DPU that is merely late is not waited for to let go", tests: fence, edits: []edit{
		{fenceLeave, "r.Heartbeats.DPU(a.Spec.NodeName) == nodehealth.Stale", "r.Heartbeats.DPU(a.Spec.NodeName) != nodehealth.Fresh"},
	}},
	{name: "a DPU that did not let go has nothing to clear up", tests: fence, edits: []edit{
		{fenceLeave, "	if !recorded {\n", "	if !recorded && a.Spec.Epoch == 0 {\n"},
	}},
	{name: "what the host cluster still wants is let go without its DPU", tests: fence, edits: []edit{
		{fenceLeave, "err != nil || wanted {", "err != nil || wanted && !wanted {"},
	}},
	{name: "a DPU that holds the volume again has to clear up", tests: right, edits: []edit{
		{ruleSilent, " || Held(claim) && claim.Status.Holder == dpu {", " {"},
	}},
	{name: "the last word of a silent DPU counts though the host was heard since", tests: fence, edits: []edit{
		{"pkg/nodehealth/observer.go", " && !e.refutes(e.host) && !e.refutes(e.kubelet)\n", "\n"},
	}},
	{name: "the word of a DPU counts that was never heard", tests: fence, edits: []edit{
		{"pkg/nodehealth/observer.go", "e.seen == SeenDead && e.dpu.changed && ", "e.seen == SeenDead && "},
	}},
	{name: "a volume is free that a DPU holds which the host has no more", tests: fence, edits: []edit{
		{"pkg/controller/failover/release.go", "!p.writable(t) && (", "t.holder() != p.dpu() && ("},
	}},
	{name: "a volume is free that the host's DPU holds for another attachment", tests: fence, edits: []edit{
		{"pkg/controller/failover/release.go", "!p.writable(t) && (", "!t.held() && ("},
	}},
	{name: "the silence of the host's DPU counts for another that holds the volume", tests: fence, edits: []edit{
		{"pkg/controller/failover/pass.go", "	if dpu == p.dpu() {\n", "	if dpu != \"\" {\n"},
	}},
	{name: "the lease of the host's DPU counts for another that holds the volume", tests: fence, edits: []edit{
		{fenceLease, "	if p.strange(t) {\n", "	if p.strange(t) && p.dpu() == \"\" {\n"},
	}},
	{name: "a pod is deleted that has come in the place of another", tests: fence, edits: []edit{
		{"pkg/controller/failover/release.go", "append(options, client.Preconditions{UID: &pod.UID})...", "options..."},
	}},
	{name: "a grant forgets who has to clear up", tests: right, edits: []edit{
		{claimState, "	s.Epoch++\n", "	s.Epoch++\n	s.Revoked = nil\n"},
	}},
	{name: "the claim is granted to an attachment that was replaced", tests: sync, edits: []edit{
		{syncGrant, "	return found && live.UID == p.mirror.UID && live", "	return found && live"},
	}},
	{name: "a patch is taken by an object that was made in the place of the one that was read", tests: sync, edits: []edit{
		{kubeWrite, "	before.SetUID(\"\")", "	_ = before"},
	}},
	{name: "a status that another object took is taken for written", tests: access, edits: []edit{
		{kubeWrite, "err == nil && uid != \"\" && obj.GetUID() != uid", "err == nil && uid == \"-\""},
	}},
	{name: "what SNAP said counts for what was shown since", tests: lease, edits: []edit{
		{leaseKeeper, "	shown, err := k.o.Shown(ctx)\n", "	shown, err := k.o.Shown(ctx)\n	k.mu.Lock()\n	asked = k.state.asked\n	k.mu.Unlock()\n"},
	}},
	{name: "a receipt does not cover the device that only the API server knows", tests: node, edits: []edit{
		{nodeFence, "	if on := &now.Status.DPU; on.DeviceName != \"\" && (", "	if on := &now.Status.DPU; on.DeviceName == \"-\" && ("},
	}},
	{name: "the DPU shows for an attachment that was replaced", tests: right, edits: []edit{
		{ruleExpose, "	return now.UID == known.UID && now.DeletionTimestamp.IsZero() &&", "	return now.DeletionTimestamp.IsZero() &&"},
	}},
	{name: "a deletion counts as seen that the cache does not have yet", tests: "./pkg/controller/dpucluster/attachment", edits: []edit{
		{"pkg/controller/dpucluster/attachment/reconciler.go", "message, o.detaching\n", "message, o.detaching || !a.DeletionTimestamp.IsZero()\n"},
	}},
	{name: "the DPU leaves a granted device to another attachment", tests: node, edits: []edit{
		{nodeDetach, " && !granted {", " && (granted || !granted) {"},
	}},
	{name: "a pass that has taken nothing away lets an attachment go", tests: node, edits: []edit{
		{nodePasses, "	case p.deleting && err == nil:\n", "	case !p.attachment.DeletionTimestamp.IsZero():\n"},
	}},
	{name: "the DPU lets go though the API server says that the device is shown", tests: node, edits: []edit{
		{nodePasses, "	case p.contradicted():\n", "	case false:\n"},
	}},
	{name: "an attachment that is said to be shown is left so without the finalizer", tests: node, edits: []edit{
		{nodePasses, "released := p.deleting && !attachment.Status.DPU.Attached && ", "released := p.deleting && "},
	}},
	{name: "the DPU forgets a SNAP service that has lost its socket", tests: node, edits: []edit{
		{nodeServices, "	out := slices.Collect(maps.Keys(s.used))\n", "	out := slices.Collect(maps.Keys(map[string]bool{}))\n"},
		{nodeServices, "		if s.used[name] == nil {\n			out", "		if name != \"\" {\n			out"},
	}},
	{name: "the DPU shows what the storage has taken back", tests: node, edits: []edit{
		{nodePrepare, "	if p.attachment.Status.StorageAttached {\n		return nil", "	if p != nil {\n		return nil"},
	}},
	{name: "what is being taken from a host that is well is not looked for", tests: fence, edits: []edit{
		{"pkg/controller/failover/observe.go", "err != nil || !ending {", "err != nil || ending || !ending {"},
	}},
	{name: "a failover begins by what the fleet looked like a while ago", tests: fence, edits: []edit{
		{"pkg/controller/failover/admit.go", "a.fleet.now(ctx)", "a.fleet.recent(ctx)"},
	}},
	{name: "what the fleet looked like counts for ever", tests: fence, edits: []edit{
		{"pkg/controller/failover/observe.go", " && age >= 0 && age < fleetAge {", " && age >= 0 {"},
	}},
	{name: "of two leaders both spend the budget", tests: fence, edits: []edit{
		{"pkg/controller/failover/admit.go", "		err = a.host.Client.Update(ctx, lease)\n", "		lease.ResourceVersion = \"\"\n		err = a.host.Client.Update(ctx, lease)\n"},
	}},
	{name: "the list of who was admitted is not read", tests: fence, edits: []edit{
		{"pkg/controller/failover/admit.go", "	if a.lease != nil {\n", "	if a.lease != nil || a.list == nil {\n		a.lease, a.list = &coordinationv1.Lease{}, failovers{}\n"},
	}},
	{name: "a leader forgets whom it has admitted", tests: fence, edits: []edit{
		{"pkg/controller/failover/admit.go", "	for host, f := range a.list {\n", "	a.list = nil\n	for host, f := range a.list {\n"},
	}},
	{name: "a failover that only the cache shows costs nothing of the budget", tests: fence, edits: []edit{
		{"pkg/controller/failover/observe.go", "		o.begun[n.Name] = f\n", ""},
	}},
	{name: "a fence begins over what has become of the claim meanwhile", tests: fence, edits: []edit{
		{fenceAct, "		err = f.dpu.Client.Status().Update(ctx, fencing)\n", "		fencing.ResourceVersion = \"\"\n		err = f.dpu.Client.Status().Update(ctx, fencing)\n"},
	}},
	{name: "a VolumeAttachment that an earlier attachment has left is taken for its own", tests: sync, edits: []edit{
		{syncGrant, "	case !hostcluster.OwnedBy(p.mirror, p.attachment):\n", "	case !hostcluster.OwnedBy(p.mirror, p.attachment) && p.mirror.Name == \"-\":\n"},
	}},
	{name: "a VolumeAttachment of the DPU that the host had before is granted the volume", tests: sync, edits: []edit{
		{syncGrant, "	case p.mirror.Spec.NodeName != p.dpu:\n", "	case p.mirror.Spec.NodeName == \"-\":\n"},
	}},
	{name: "a DPU has cleared up though a SNAP service did not answer", tests: node, edits: []edit{
		{nodeFence, "	if err == nil && !shown.Complete {", "	if err == nil && !shown.Complete && ctx == nil {"},
	}},
	{name: "a DPU is let into the storage that has not cleared up what was taken from it", tests: "./pkg/controller/dpucluster/attachment", edits: []edit{
		{"pkg/controller/dpucluster/attachment/attach.go", "a.Status.DPU.RetiredEpoch); epoch != 0 {", "a.Status.DPU.RetiredEpoch); epoch < 0 {"},
	}},
	{name: "a DPU is let into the storage for an attachment while it holds the claim for the one before", tests: "./pkg/controller/dpucluster/attachment", edits: []edit{
		{"pkg/controller/dpucluster/attachment/attach.go", "	if writer.HeldForAnother(claim, a) {", "	if writer.HeldForAnother(claim, a) && a.UID == \"\" {"},
	}},
	{name: "a replica is made anew while the claim is held for its name", tests: sync, edits: []edit{
		{syncGrant, "		if err != nil || writer.HolderFor(claim, p.attachment.Name).DPU == \"\" {", "		if err != nil || claim != nil {"},
	}},
}
