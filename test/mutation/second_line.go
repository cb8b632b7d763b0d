package main

// secondLine are checks that matter only while a cache is behind, while something
// is replaced by its like, or behind another check.
var secondLine = []mutation{
	{name: "the storage is asked to revoke a DPU that is heard", tests: fence, edits: []edit{
		{fenceAct, "	if !s.signs.DPU.Silent() || t.mirror == nil {\n", "	if t.mirror == nil {\n"},
	}},
	{name: "the holds of a DPU that is heard are taken off", tests: fence, edits: []edit{
		{fenceAct, "	if !s.signs.DPU.Silent() || !overWithoutDPU(t) ||", "	if !overWithoutDPU(t) ||"},
	}},
	{name: "a pod is deleted that has come in the place of another", tests: fence, edits: []edit{
		{"pkg/controller/failover/release.go", "append(options, client.Preconditions{UID: &p.UID})...", "options..."},
	}},
	{name: "a grant forgets who has to clear up", tests: sync, edits: []edit{
		{syncGrant, "			claim.Status.Revoked = before.Revoked\n", "			_ = before.Revoked\n"},
	}},
	{name: "the claim is granted to an attachment that was replaced", tests: sync, edits: []edit{
		{syncGrant, "	if !found || live.UID != s.mirror.UID || !live.DeletionTimestamp.IsZero() {", "	if !found || !live.DeletionTimestamp.IsZero() {"},
	}},
	{name: "what SNAP said counts for what was shown since", tests: lease, edits: []edit{
		{leaseKeeper, "	shown, err := k.o.Shown(ctx)\n", "	shown, err := k.o.Shown(ctx)\n	k.mu.Lock()\n	asked = k.state.asked\n	k.mu.Unlock()\n"},
	}},
}
