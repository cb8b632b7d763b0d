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
	"pkg/node/selffence": {
		"decide.go state.begin: s.expire(now): removed":        "the phase is only compared with unknown and unbound here, which no lease that ends becomes or was, and all others who read it let it end first",
		"decide.go state.answered: s.phase == lapsed: dropped": "a heartbeat that offered a lease was begun in no phase but bound and lapsed, or has made it bound",
	},
	"pkg/controller/failover/doubt": {
		"doubt.go Timer.Note: limit == 0: never":  noLimit,
		"doubt.go Timer.Note: limit == 0: 0 is 1": noLimit,
	},
	"pkg/node/dpu/journal": {
		"journal.go Journal.write: int64(0): 0 is 1":                                 "only the order of the changes counts",
		"journal.go Journal.write: other.Change < j.volumes[oldest].Change: < is <=": "no two entries have the same change",
		"journal.go Journal.write: err == nil: always":                               journalEncodes,
		"journal.go Journal.write: err == nil: always #2":                            "after the first, which does not fail, this one does not either, as the text that it holds is JSON",
	},
}

const (
	freeRefusesNone = "the claim is a copy in Fencing, and the receipt is made of it: Free refuses it only if its own rule is wrong"
	journalEncodes  = "texts and numbers, by a text, can always be written as JSON"
	noLimit         = "a doubt without a limit is remembered until now, so it is forgotten as it is noted, and another that follows begins anew as well; none is limited to one nanosecond"
	wholeMillis     = "it is made of whole milliseconds, so it is never one nanosecond"
)
