package main

// The files that are edited more than once.
const (
	nodeRecord = "pkg/node/dpu/exposures/incarnation.go"
	nodeShow   = "pkg/node/dpu/show.go"
)

// evidence are checks of what a receipt rests on beside the API: which process showed
// a device, and whether it was there to the end.
var evidence = []mutation{
	{name: "a SNAP service on record that has no socket is not asked", tests: node, edits: []edit{
		{nodeRecord, "	return e.services.add(shown.Provider)", "	return false"},
	}},
	{name: "a SNAP service on record counts as ended while its machine runs", tests: node, edits: []edit{
		{nodeRecord, "boot != \"\" && s.boot != \"\" && boot != s.boot", "boot != \"\" && s.boot != \"\""},
	}},
	{name: "the DPU shows by a service that is not on record", tests: node, edits: []edit{
		{nodeShow, "	return p.outdated()", "	return nil"},
		{nodeRight, "now.Status.DPU.Provider != p.dpu.Provider || ", ""},
	}},
}
