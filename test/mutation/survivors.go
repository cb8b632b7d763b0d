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
	"pkg/controller/failover": {
		"fence.go fencer.revoke: err != nil: dropped":                                                      notFound,
		"release.go podReader.confirm: err != nil: dropped":                                                "Users finds no volume with an error",
		"release.go releaser.forceDelete: pod.DeletionTimestamp != nil: dropped":                           "a pod has a grace period of its deletion only with that",
		"admit.go admitted.write: err != nil: never":                                                       admittedEncodes,
		`admit.go admitted.write: return fmt.Errorf("encode the failovers of late: %w", err): returns nil`: admittedEncodes,
	},
	"pkg/controller/failover/detach": {
		"reconciler.go Reconciler.Reconcile: err != nil: dropped":                notFound,
		"reconciler.go Reconciler.end: err != nil: dropped #2":                   notFound,
		"reconciler.go Reconciler.end: !concerns(attachment): dropped":           "leave does nothing about it either, as its epoch is neither over nor on record as over",
		"reconciler.go Reconciler.letGo: err != nil: dropped":                    notFound,
		"reconciler.go Reconciler.letGo: !writer.Detaching(attachment): dropped": "one that is released is being deleted, and a hold that is off is not taken off again",
		"reconciler.go keep: err != nil: dropped":                                notFound,
		"reconciler.go keep: found: dropped":                                     "a host that was not found is empty, and an empty one does not fail over",
		"reconciler.go writerClaim: err != nil: dropped":                         notFound,
		"surrender.go Reconciler.acceptSurrender: err != nil: dropped":           "writerClaim returns no claim with an error, and there is no receipt for none",
		"surrender.go Reconciler.acceptSurrender: err != nil: dropped #2":        notFound,
	},
	"pkg/controller/failover/lostpath": {
		"reader.go Reader.reaches: err != nil: dropped":              notFound,
		`reader.go Reader.reaches: node.Spec.DPUName == "": dropped`: "no DPU is ever heard by the empty name, so it is no witness either",
	},
	"pkg/controller/failover/powerproof": {
		"connect.go Keeper.ofDevice: err != nil: dropped":                     notFound,
		"connect.go Keeper.secret: err != nil: dropped":                       notFound,
		"keeper.go Keeper.find: err != nil: dropped":                          notFound,
		"keeper.go Keeper.Ask: err != nil: dropped":                           notFound,
		"keeper.go Keeper.Release: err != nil: dropped":                       notFound,
		"step.go Keeper.Reconcile: err != nil: dropped":                       notFound,
		"keeper.go New: make(chan event.GenericEvent, 1024): 1024 is 1025":    "how much room a channel has is no rule: what does not fit is told again by the next question",
		"keeper.go New: make(chan event.GenericEvent, 1024): 1024 is 1025 #2": "how much room a channel has is no rule: what does not fit is told again by the next question",
		"step.go workers: workers = 16: 16 is 17":                             "how many machines are asked at once is no rule",
		"step.go Keeper.turn: return session{}, false, left: false is true":   "while a step has time, nothing else is looked at",
	},
	"pkg/controller/pods/helper": {
		"judge.go Case.report: c.Report.PodUID == \"\": dropped":  "a record without a UID is judged without a report",
		"tries.go Due: min(max(int(t.Failures)-1, 0), 6): 6 is 7": "both are above the longest pause",
	},
	"pkg/controller/pods/revocation": {
		"decide.go decide: r.Status.Pod != nil: dropped": "a pod is seen of a record alone",
		"facts.go Requests.look: err != nil: dropped":    notFound,
		"facts.go Requests.look: found: always":          "a claim without a status is held by none, like none",
		"facts.go Requests.behind: err != nil: dropped":  notFound,
	},
	"pkg/node/dpu": {
		"detach.go remover.withdrawUnrecorded: len(shown.Exposures) == 0: never": "it only saves reads: where nothing is shown, no device is withdrawn after it either",
		"detach.go remover.hurryReceipt: !p.claimRead: dropped":                  "a claim that was not read is none, of which nothing is fenced",
		"fence.go fence.end: err != nil: dropped":                                notFound,
		"fence.go fence.overtaken: uid == \"\": dropped":                         "the journal has no volume without a UID, so it refuses nothing of one",
		"fence.go fence.clearLost: err != nil: never":                            "without a claim nothing was lost, so that nothing is cleared either",
		"show.go shower.record: return p.outdated(): returns nil":                "right.confirm, which comes next, ends the pass as well: the incarnation is not on record yet",
		"right.go right.confirm: err != nil: dropped":                            "the claim is read by now, so that only the withdrawal of a right that is refused fails, and then the error is returned as well",
		"right.go right.giveUp: shown.Complete: dropped":                         "what is hidden is listed by a service, and a list that has one and no error is complete",
	},
	"pkg/node/dpu/attachments": {
		"precedence.go Store.Preceding: rank(other, mine) < 0: < is <=": namesDiffer,
		"precedence.go Store.Preceding: rank(other, mine) < 0: 0 is 1":  namesDiffer,
		"queue.go Queue.AddWaiting: err != nil: never":                  "what cannot be listed is no attachment, so none is added",
		"store.go Store.Again: err != nil: dropped":                     notFound,
		"store.go Store.Volume: err != nil: dropped":                    notFound,
	},
	"pkg/node/dpu/exposures": {
		"incarnation.go services.incarnation: uint64(0): 0 is 1":                 "it is told of each file on Linux which inode it has",
		"incarnation.go services.incarnation: ok: always":                        "it is told of each file on Linux which inode it has",
		"singlewriter.go Exposures.WithdrawSingleWriter: len(devices)+1: 1 is 0": "only how much room there is before more is made",
	},
	"pkg/node/dpu/paths": {
		"ways.go Ways.judgeUnseen: return t.unanswered(j.now, j.bounds): never": "the loss has a new reason, which is told as well",
	},
	"pkg/node/dpu/patrol": {
		"sweep.go Patrol.sweep: known: dropped": "what was not known is there since now, which is no time, and a period is one",
	},
	"pkg/node/dpu/journal": {
		"journal.go Journal.write: int64(0): 0 is 1":                                 "only the order of the changes counts",
		"journal.go Journal.write: other.Change < j.volumes[oldest].Change: < is <=": "no two entries have the same change",
		"journal.go Journal.write: err == nil: always":                               journalEncodes,
		"journal.go Journal.write: err == nil: always #2":                            "after the first, which does not fail, this one does not either, as the text that it holds is JSON",
	},
}

const (
	admittedEncodes = "zones and times of a clock, by the names of hosts, can always be written as JSON"
	freeRefusesNone = "the claim is a copy in Fencing, and the receipt is made of it: Free refuses it only if its own rule is wrong"
	namesDiffer     = "two attachments of different names never have the same rank, and one of its own name was left out before"
	notFound        = "what could not be read was not found either, and the error is returned with both"
	journalEncodes  = "texts and numbers, by a text, can always be written as JSON"
	noLimit         = "a doubt without a limit is remembered until now, so it is forgotten as it is noted, and another that follows begins anew as well; none is limited to one nanosecond"
	wholeMillis     = "it is made of whole milliseconds, so it is never one nanosecond"
)
