package main

// survivors are the mutants of each package that no test can catch, since they do what
// the code does, with the reason. A mutant that only has no test yet is none of them.
var survivors = map[string]map[string]string{
	"pkg/writer": {
		"vouch.go FreeByVouch: err != nil: never":              freeRefusesNone,
		`vouch.go FreeByVouch: return err.Error(): returns ""`: freeRefusesNone,
		"lease.go Promised: p.Duration > 0: 0 is 1":            wholeMillis,
		"lease.go Promised: p.Grace > 0: 0 is 1":               wholeMillis,
	},
}

const (
	freeRefusesNone = "the claim is a copy in Fencing, and the receipt is made of it: Free refuses it only if its own rule is wrong"
	wholeMillis     = "it is made of whole milliseconds, so it is never one nanosecond"
)
