package proof

import (
	"cmp"
	"slices"
	"time"

	"github.com/moor-storage/moor/reference/writelog"
)

// Below is what a recorder beneath the target saw of a volume's file. It knows
// each write, whatever the target says, but not for which DPU it was: its DPU
// fields name processes.
type Below struct {
	// Writes that reached the file, all of them since it was made. One write of
	// the target may be several here: the kernel hands large ones on in pieces.
	Writes []writelog.Write
	// ReadAt is CLOCK_MONOTONIC from before Writes was read.
	ReadAt time.Duration
}

// Unlogged are the writes that reached the file and are not in the target's log.
// The target logs a write after the file has taken it, so one that is under way
// is among them for an instant: read the log again.
func (b Below) Unlogged(logged []writelog.Write) []writelog.Write {
	unlogged, _ := b.match(logged)
	return unlogged
}

// match gives each write of the log the pieces in the file that it is made of,
// and returns the pieces and the logged writes that are left. A piece comes
// before the record of its write. Of like pieces the earliest goes to the
// earliest write: if any way to match them leaves nothing over, this one does.
func (b Below) match(logged []writelog.Write) (unlogged, missing []writelog.Write) {
	at := map[int64][]writelog.Write{}
	for _, w := range b.Writes {
		at[w.Offset] = append(at[w.Offset], w)
	}
	for _, w := range logged {
		if !take(at, w) && w.Monotonic <= b.ReadAt {
			missing = append(missing, w)
		}
	}
	for _, left := range at {
		unlogged = append(unlogged, left...)
	}
	slices.SortFunc(unlogged, func(a, b writelog.Write) int { return cmp.Compare(a.Seq, b.Seq) })
	return unlogged, missing
}

// take removes the pieces of a write; whole is false if one is missing.
func take(at map[int64][]writelog.Write, w writelog.Write) (whole bool) {
	for from, end := w.Offset, w.Offset+w.Length; from < end; {
		i := piece(at[from], end, w.Monotonic)
		if i < 0 {
			return false
		}
		length := at[from][i].Length
		at[from] = slices.Delete(at[from], i, i+1)
		from += length
	}
	return true
}

// piece is the index of the longest piece that fits before end and came before
// an instant, the earliest of those; -1 if there is none. The longest: only the
// last piece of a write is shorter than what the kernel hands on at once.
func piece(pieces []writelog.Write, end int64, before time.Duration) int {
	found := -1
	for i, p := range pieces {
		if p.Length > 0 && p.Offset+p.Length <= end && p.Monotonic <= before && (found < 0 || p.Length > pieces[found].Length) {
			found = i
		}
	}
	return found
}

// checkBelow wants the log of the target to tell of each write that reached the
// file, and of none that did not.
func checkBelow(f *findings, logged []writelog.Write, below Below) {
	checkLog(f, "the recorder beneath the target", below.Writes)
	unlogged, missing := below.match(logged)
	if n := len(unlogged); n > 0 {
		w := unlogged[0]
		f.add(RuleBelow, "%d writes reached the file that the target's log does not know, the first of %d bytes at offset %d at %s by %s",
			n, w.Length, w.Offset, w.Monotonic, w.DPU)
	}
	if n := len(missing); n > 0 {
		w := missing[0]
		f.add(RuleBelow, "%d writes of the target's log never reached the file, the first is write %d of %s, of %d bytes at offset %d",
			n, w.Seq, w.DPU, w.Length, w.Offset)
	}
}
