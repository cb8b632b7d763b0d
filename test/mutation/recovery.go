package main

// The packages of the recovery of SNAP, and their files that are edited more than once.
const (
	snapNVMe = "./pkg/provisioner/snap"

	nvmeCreate = "pkg/provisioner/snap/nvme/create.go"
	nodeEnded  = "pkg/node/dpu/exposures/incarnation.go"
	passKept   = "pkg/node/dpu/pass.go"
)

// recoveries are the checks around what functions keep for a SNAP service that ended, each
// switched off.
var recoveries = []mutation{
	{name: "what a function has kept is served whatever epoch it is of", tests: node, edits: []edit{
		{nodeRight, "p.dpu.KeptEpoch == nil || *p.dpu.KeptEpoch != p.attachment.Spec.Epoch || p.dpu.PCIDeviceAddress == \"\"", "p.volume == nil"},
		{nodeRight, "|| r.journal.Stands(p.volume.UID, p.attachment.Spec.Epoch)", "|| true"},
	}},
	{name: "what a function has kept is served whatever the journal says", tests: node, edits: []edit{
		{nodeRight, "|| r.journal.Stands(p.volume.UID, p.attachment.Spec.Epoch)", "|| true"},
	}},
	{name: "a controller is resumed without asking whether the right still stands", tests: node, edits: []edit{
		{nodeRight, "func (r right) stillHeld(ctx context.Context, p *pass) error {\n", "func (r right) stillHeld(ctx context.Context, p *pass) error {\n	if p != nil {\n		return nil\n	}\n"},
	}},
	{name: "a controller is resumed before it is asked whether it may be", tests: snapNVMe, edits: []edit{
		{nvmeCreate, "		if b.spec.Recover != nil {\n			if err := b.spec.Recover(ctx); err != nil {", "		if b.spec.Recover != nil {\n			if err := b.d.RPC.NvmeControllerResume(ctx, p.controller.CtrlID); err != nil {\n				return err\n			}\n			if err := b.spec.Recover(ctx); err != nil {"},
	}},
	{name: "a function is taken with what it has kept", tests: node, edits: []edit{
		{nvmeCreate, "	if b.spec.Recover == nil {\n		if err := b.d.discardAt", "	if b.spec.Recover == nil && b.d == nil {\n		if err := b.d.discardAt"},
	}},
	{name: "a suspended controller of before is resumed", tests: snapNVMe, edits: []edit{
		{"pkg/provisioner/snap/nvme/expose.go", "(b.spec.Recover != nil || !p.suspended())", "p.own()"},
	}},
	{name: "a withdrawal leaves what a function has kept", tests: node, edits: []edit{
		{nodeEnded, "	if shown.KeptEpoch != nil || ended && (shown.Attached || shown.PreEmulated) {", "	if shown.KeptEpoch != nil && shown.Provider == \"\" {"},
	}},
	{name: "it is not on record that a function may have kept something", tests: node, edits: []edit{
		{passKept, "		p.dpu.KeptEpoch = ptr.To(p.dpu.Epoch)", "		_ = ptr.To(p.dpu.Epoch)"},
	}},
	{name: "what a function has kept of another volume is recovered", tests: "./pkg/provisioner/snap/nvme", edits: []edit{
		{"pkg/provisioner/snap/nvme/choose.go", "pendingToo && f.Hotplugged && f.CtrlID == \"\" && pending(f) })", "f.Hotplugged && f.CtrlID == \"\" && (pendingToo && pending(f) || recovers) })"},
	}},
}
