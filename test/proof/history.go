package proof

import (
	"fmt"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/reference/showlog"
	"github.com/moor-storage/moor/reference/writelog"
)

// State is what a WriterClaim said from some instant on.
type State struct {
	Phase    moorv1alpha1.ClaimPhase
	Holder   string
	Epoch    int64
	Receipts []moorv1alpha1.Receipt
	// At is CLOCK_MONOTONIC of the machine when the state was seen, which is
	// after it began; 0 if that is not known.
	At time.Duration
	// NotBefore is CLOCK_MONOTONIC of the second in which the epoch before ended, by its
	// receipt, if the claim is held: so the epoch had not begun earlier. 0 if that is not
	// known.
	NotBefore time.Duration
}

func (s State) held() bool { return s.Phase != moorv1alpha1.ClaimFree }

// over is the last epoch that has ended in this state; 0 is none.
func (s State) over() int64 {
	if s.held() {
		return s.Epoch - 1
	}
	return s.Epoch
}

// Journal is what one file was given line by line, and what it held later.
type Journal struct {
	// Name is for people.
	Name string
	// Acknowledged are the lines that were fsynced, in order.
	Acknowledged []string
	// Read is what was read back. It may hold more: what was written and
	// never acknowledged may be there or not.
	Read []string
}

// History is all that was recorded of one volume. The medium log is read
// before the States are taken: else it may hold writes of an epoch that States
// does not know yet.
type History struct {
	// Volume is for people.
	Volume string
	// States of the claim, all of them since the first, in order.
	States []State
	// Writes that the medium accepted, all of them since the volume was made.
	Writes []writelog.Write
	// Reads are when DPUs read, and Exposures when their hosts saw the volume, of all of its
	// life; nil if that was not recorded. They are read before the States, as Writes are.
	Reads     []writelog.Access
	Exposures []showlog.Exposure
	// Below is what was recorded beneath the target, nil if nothing was.
	Below    *Below
	Journals []Journal
}

// Rule is what a history must keep to.
type Rule string

// The rules.
const (
	// RuleGrows: epochs strictly grow from grant to grant.
	RuleGrows Rule = "epochs grow"
	// RuleOneHolder: no epoch has two holders.
	RuleOneHolder Rule = "one holder for an epoch"
	// RulePhases: Free, Granted, perhaps Fencing, Free; nothing else.
	RulePhases Rule = "phases in order"
	// RuleReceipt: every epoch that is over has a receipt that names it.
	RuleReceipt Rule = "a receipt for every end"
	// RuleHeld: every writer has held the claim.
	RuleHeld Rule = "writers held the claim"
	// RuleOneWriter: the writes form runs in the order of the epochs, and
	// nothing is accepted of an epoch that is over, or has not begun.
	RuleOneWriter Rule = "one writer"
	// RuleReaders: every read was under an epoch of its DPU, that had begun and was not over.
	RuleReaders Rule = "readers held the claim"
	// RuleShown: a DPU began to show the volume under an epoch of its own, that had begun and
	// was not over.
	RuleShown Rule = "shown by the holder"
	// RuleWithdrawn: what a DPU's own receipt ended is not shown any more.
	RuleWithdrawn Rule = "withdrawn before the receipt"
	// RuleLog: the medium log has no hole.
	RuleLog Rule = "a whole log"
	// RuleBelow: the target's log tells of what reached the file, of no more and
	// of no less.
	RuleBelow Rule = "the log tells what happened"
	// RuleAcknowledged: no acknowledged line is missing.
	RuleAcknowledged Rule = "nothing acknowledged is lost"
	// RuleOrder: acknowledged lines are read back in their order.
	RuleOrder Rule = "order kept"
)

// Violation is a rule that was broken, and how.
type Violation struct {
	Rule  Rule
	Words string
}

// String gives both, for people.
func (v Violation) String() string { return string(v.Rule) + ": " + v.Words }

// findings gathers violations of one volume.
type findings struct {
	volume string
	all    []Violation
}

func (f *findings) add(rule Rule, format string, args ...any) {
	f.all = append(f.all, Violation{Rule: rule, Words: "volume " + f.volume + ": " + fmt.Sprintf(format, args...)})
}

// Check returns every rule that the history breaks; none if it is a
// history of one writer at a time that lost nothing.
func Check(h History) []Violation {
	f := &findings{volume: h.Volume}
	checkStates(f, h.States)
	epochs := checkHolders(f, h.States)
	checkLog(f, "the medium log", h.Writes)
	checkWriters(f, h.Writes, epochs)
	checkReaders(f, h.Reads, epochs)
	checkExposures(f, h.Exposures, epochs)
	if h.Below != nil {
		checkBelow(f, h.Writes, *h.Below)
	}
	for _, j := range h.Journals {
		checkJournal(f, j)
	}
	return f.all
}

// After counts the writes of holder that the medium accepted after the end of
// the epoch was seen. It is an error if no end was seen, or no time with it.
// Writes under a later grant to the same holder count too.
func (h History) After(holder string, epoch int64) (int, error) {
	end, ok := ends(h.States, epoch)
	if !ok {
		return 0, fmt.Errorf("count writes of %s to volume %s after epoch %d: its end was not recorded", holder, h.Volume, epoch)
	}
	n := 0
	for _, w := range h.Writes {
		if w.DPU == writelog.Short(holder) && w.Monotonic > end {
			n++
		}
	}
	return n, nil
}
