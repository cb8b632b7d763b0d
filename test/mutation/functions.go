package main

// functions are checks of which PCI function of a host is the one that the DPU
// means, each switched off.
var functions = []mutation{
	{name: "another's function at the address is the place", tests: disk, edits: []edit{
		{"internal/hostdev/vuid.go", "	case slices.Contains(unread, addr):\n", "	case slices.Contains(at, addr):\n"},
	}},
	{name: "of two functions with a VUID the first is taken", tests: disk, edits: []edit{
		{"internal/hostdev/vuid.go", "	case len(with) == 1:\n		return with[0], nil\n	case len(with) > 1:\n		return \"\", twice(with, vuid)", "	case len(with) >= 1:\n		return with[0], nil\n	case at == nil:\n		return \"\", twice(with, vuid)"},
	}},
	{name: "of two functions without a VUID one is taken", tests: disk, edits: []edit{
		{"internal/hostdev/vuid.go", "	case len(unread) > 1:\n", "	case at == nil:\n"},
	}},
	{name: "of two file systems' functions with a VUID the first is taken", tests: disk, edits: []edit{
		{"internal/hostdev/vuid.go", "	switch with, _ := f.claimants(all, id.VUID); {\n	case len(with) == 1:", "	switch with, _ := f.claimants(all, id.VUID); {\n	case len(with) >= 1:"},
	}},
	{name: "a virtual function has a VUID of its own", tests: disk, edits: []edit{
		{"internal/hostdev/vuid.go", "		path = f.device(addr, \"physfn\", \"vpd\")", "		path = f.device(addr, \"vpd\")"},
	}},
	{name: "a driver is bound by the address alone", tests: disk, edits: []edit{
		{"internal/hostdev/revive.go", "k.f.locate(id.Address, id.VUID)", "k.f.locate(id.Address, \"\")"},
	}},
	{name: "a vendor takes the VUID's name", tests: "./pkg/provisioner/dpf/attachment", edits: []edit{
		{"pkg/provisioner/dpf/attachment/publish.go", "			ours[storagev1alpha1.PublishContextVUID] = dpu.FuncVUID", "			context[storagev1alpha1.PublishContextVUID] = dpu.FuncVUID"},
	}},
	{name: "a virtual function's own VUID is told", tests: "./pkg/provisioner/snap", edits: []edit{
		{"pkg/provisioner/snap/nvme/choose.go", "			return pf.VUID\n", "			return f.VUID\n"},
	}},
	{name: "a function whose controller lives is bound again", tests: disk, edits: []edit{
		{"internal/hostdev/revive.go", "		if err != nil || state != deadState {", "		if err != nil || state == \"-\" {"},
	}},
	{name: "a function that the driver just got is bound again", tests: disk, edits: []edit{
		{"internal/hostdev/revive.go", "		return now.Sub(k.bare) >= probeGrace", "		return now.Sub(k.bare) >= 0"},
	}},
	{name: "a function is bound again and again", tests: disk, edits: []edit{
		{"internal/hostdev/revive.go", "	case k.rebound || !k.givenUp(addr):", "	case !k.givenUp(addr):"},
	}},
}
