package main

// The files and the package of the fence by host access.
const (
	hostAccess     = "reference/nvmeaccess/access.go"
	hostAccessEnds = "reference/nvmeaccess/fence.go"
	hostAccessRule = "reference/nvmeaccess/judge.go"

	hostAccessTests = "./reference/nvmeaccess"
)

// hostAccesses are the checks of the fence of a target that goes by who may connect, and of
// which DPU is in a host, each switched off.
var hostAccesses = []mutation{
	{name: "an epoch that is over is admitted at the target", tests: hostAccessTests, edits: []edit{
		{hostAccess, "	case epoch < m.Fenced:\n", "	case epoch < 0:\n"},
	}},
	{name: "a mark that was lost is that of a new volume", tests: hostAccessTests, edits: []edit{
		{hostAccess, "	case !found:\n", "	case !found && epoch < 0:\n"},
	}},
	{name: "an admission is not on record before it is asked for", tests: hostAccessTests, edits: []edit{
		{hostAccess, "	if err := a.marks.save(m); err != nil {\n		return err\n	}\n	err := add()\n", "	err := add()\n"},
	}},
	{name: "that a removal was asked for counts as its effect", tests: hostAccessTests, edits: []edit{
		{hostAccessEnds, "	if err == nil {\n		err = r.waits(got)\n	}\n	if err != nil {\n		err = errors.Join(append(", "	if err != nil || got.subsystems == nil {\n		err = errors.Join(append("},
	}},
	{name: "a fence does not wait for what is on its way to the target", tests: hostAccessTests, edits: []edit{
		{hostAccessEnds, "now.Sub(c.since); left > 0 {", "now.Sub(c.since); left > 2*a.o.LateCall {"},
	}},
	{name: "a subsystem that admits any host counts as closed", tests: hostAccessTests, edits: []edit{
		{hostAccessRule, "	case *s.AllowAnyHost:\n", "	case *s.AllowAnyHost && s.NQN == \"\":\n"},
	}},
	{name: "a queue pair that belongs to no controller is passed over", tests: hostAccessTests, edits: []edit{
		{hostAccessRule, "	case q.Controller == nil || !known[*q.Controller]:\n", "		case q.Controller == nil:\n"},
	}},
	{name: "the DPU that a host has by name is replaced by the one of DPF", tests: "./pkg/controller/dpupairing", edits: []edit{
		{"pkg/controller/dpupairing/decide.go", "	case node.Spec.DPUName == \"\":\n", "	case node.Spec.DPUName != \"-\":\n"},
	}},
}
