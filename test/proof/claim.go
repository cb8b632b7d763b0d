package proof

import (
	"cmp"
	"slices"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/reference/writelog"
)

// keptReceipts is how many receipts a claim keeps: the limit of its schema.
const keptReceipts = 8

// checkStates looks at each state by itself and at each step.
func checkStates(f *findings, states []State) {
	missed := map[int64]bool{}
	for i, s := range states {
		if s.held() && (s.Holder == "" || s.Epoch < 1) {
			f.add(RulePhases, "the claim is %s with holder %q under epoch %d", s.Phase, s.Holder, s.Epoch)
		}
		checkReceipts(f, s, missed)
		if i > 0 {
			checkStep(f, states[i-1], s)
		}
	}
}

// checkStep looks at one change of the claim.
func checkStep(f *findings, a, b State) {
	switch {
	case b.Epoch < a.Epoch:
		f.add(RuleGrows, "epoch %d comes after epoch %d", b.Epoch, a.Epoch)
	case !a.held() && b.held() && b.Epoch == a.Epoch:
		f.add(RuleGrows, "epoch %d, which was over, was granted again to %s", b.Epoch, b.Holder)
	case !a.held() && b.Phase == moorv1alpha1.ClaimFencing:
		f.add(RulePhases, "the claim went from Free to Fencing (holder %s, epoch %d)", b.Holder, b.Epoch)
	case a.held() && b.held() && b.Epoch > a.Epoch:
		f.add(RulePhases, "epoch %d was granted to %s while %s held epoch %d", b.Epoch, b.Holder, a.Holder, a.Epoch)
	case a.Phase == moorv1alpha1.ClaimFencing && b.Phase == moorv1alpha1.ClaimGranted:
		f.add(RulePhases, "the claim went from Fencing back to Granted (holder %s, epoch %d)", b.Holder, b.Epoch)
	}
}

// checkReceipts wants a receipt for each epoch that is over, as far back as
// the claim keeps them. It says so once for an epoch: missed are those of
// which it was said.
func checkReceipts(f *findings, s State, missed map[int64]bool) {
	first := int64(1)
	named := map[int64]bool{}
	for _, r := range s.Receipts {
		named[r.Epoch] = true
		if r.Epoch > s.over() {
			f.add(RuleReceipt, "a receipt ends epoch %d of %s, which is not over: the claim is %s under epoch %d", r.Epoch, r.Holder, s.Phase, s.Epoch)
		}
	}
	if len(s.Receipts) >= keptReceipts {
		first = s.Receipts[0].Epoch
	}
	for epoch := max(first, s.over()-keptReceipts+1); epoch <= s.over(); epoch++ {
		if !named[epoch] && !missed[epoch] {
			missed[epoch] = true
			f.add(RuleReceipt, "epoch %d is over without a receipt: the claim is %s under epoch %d", epoch, s.Phase, s.Epoch)
		}
	}
}

// epoch is a right to write that was granted.
type epoch struct {
	number int64
	// holder is as the medium log names it.
	holder string
	// begin is before it began; 0 if nothing is known of that.
	begin time.Duration
	// end is when it was seen to be over, if ended.
	end   time.Duration
	ended bool
	// receipt is by which proof it ended, if that is known.
	receipt moorv1alpha1.ReceiptKind
}

// checkHolders gathers who held which epoch, from the states and from the
// receipts, in the order of the epochs. The first that is named counts.
func checkHolders(f *findings, states []State) []epoch {
	holders, receipts := map[int64]string{}, map[int64]moorv1alpha1.ReceiptKind{}
	note := func(number int64, holder string) {
		switch was, known := holders[number]; {
		case !known:
			holders[number] = holder
		case was != holder:
			f.add(RuleOneHolder, "epoch %d has the holders %s and %s", number, was, holder)
		}
	}
	for _, s := range states {
		for _, r := range s.Receipts {
			note(r.Epoch, r.Holder)
			receipts[r.Epoch] = r.Kind
		}
		if s.held() {
			note(s.Epoch, s.Holder)
		}
	}
	var out []epoch
	for number, holder := range holders {
		e := epoch{number: number, holder: writelog.Short(holder), receipt: receipts[number]}
		e.begin = begins(states, number)
		e.end, e.ended = ends(states, number)
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b epoch) int { return cmp.Compare(a.number, b.number) })
	for i := 1; i < len(out); i++ { // none begins before the one before it
		out[i].begin = max(out[i].begin, out[i-1].begin)
	}
	return out
}

// accepts reports whether the medium may accept a write of the epoch at that time.
func (e epoch) accepts(at time.Duration) bool { return at >= e.begin && !(e.ended && at > e.end) }

// begins is a time at which the epoch had not begun yet; 0 if none is known.
func begins(states []State, number int64) time.Duration {
	for _, s := range states {
		if s.held() && s.Epoch == number && s.NotBefore > 0 {
			return s.NotBefore
		}
	}
	return 0
}

// ends is when the epoch was first seen to be over, if that is known.
func ends(states []State, number int64) (time.Duration, bool) {
	for _, s := range states {
		if s.over() >= number {
			return s.At, s.At > 0
		}
	}
	return 0, false
}
