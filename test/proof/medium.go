package proof

import (
	"slices"

	"github.com/moor-storage/moor/reference/writelog"
)

// checkLog wants every sequence number from 1, and a clock that never goes
// back.
func checkLog(f *findings, of string, writes []writelog.Write) {
	for i, w := range writes {
		if w.Seq != uint64(i+1) {
			f.add(RuleLog, "write %d of %s carries sequence %d", i+1, of, w.Seq)
			return
		}
		if i > 0 && w.Monotonic < writes[i-1].Monotonic {
			f.add(RuleLog, "write %d of %s is of %s, the one before it of %s", w.Seq, of, w.Monotonic, writes[i-1].Monotonic)
			return
		}
	}
}

// checkWriters gives each write the first epoch of its writer that is not
// before that of the write before it, and had begun and was not over when the
// medium accepted it. If any way to share out the writes is lawful, this one is: to
// take an earlier epoch never leaves less to the writes that follow.
func checkWriters(f *findings, writes []writelog.Write, epochs []epoch) {
	at, told := 0, ""
	for _, w := range writes {
		i := place(w, epochs, at)
		if i >= 0 {
			at, told = i, ""
			continue
		}
		// One violation for a run.
		if told == w.DPU {
			continue
		}
		told = w.DPU
		switch last := lastOf(w.DPU, epochs); {
		case last < 0:
			f.add(RuleHeld, "write %d is of %s, which never held the claim", w.Seq, w.DPU)
		case last < at:
			f.add(RuleOneWriter, "write %d of %s, which held epoch %d last, comes after a write of %s under epoch %d",
				w.Seq, w.DPU, epochs[last].number, epochs[at].holder, epochs[at].number)
		case w.Monotonic < epochs[last].begin:
			f.add(RuleOneWriter, "write %d of %s was accepted at %s, before its epoch %d began (the epoch before ended at %s, or within a second after)",
				w.Seq, w.DPU, w.Monotonic, epochs[last].number, epochs[last].begin)
		default:
			f.add(RuleOneWriter, "write %d of %s was accepted at %s, after its epoch %d was over (seen at %s)",
				w.Seq, w.DPU, w.Monotonic, epochs[last].number, epochs[last].end)
		}
	}
}

// place is the first epoch from at on under which w may have been written, -1
// if there is none.
func place(w writelog.Write, epochs []epoch, at int) int {
	for i := at; i < len(epochs); i++ {
		if e := epochs[i]; e.holder == w.DPU && e.accepts(w.Monotonic) {
			return i
		}
	}
	return -1
}

// lastOf is the last epoch of a writer, -1 if it had none.
func lastOf(dpu string, epochs []epoch) int {
	for i, e := range slices.Backward(epochs) {
		if e.holder == dpu {
			return i
		}
	}
	return -1
}

// checkJournal wants each acknowledged line as often as it was acknowledged,
// and all of them in order.
func checkJournal(f *findings, j Journal) {
	left := map[string]int{}
	for _, line := range j.Read {
		left[line]++
	}
	whole := true
	for i, line := range j.Acknowledged {
		if left[line]--; left[line] < 0 {
			whole = false
			f.add(RuleAcknowledged, "journal %s: line %d, %q, was acknowledged and is not there; read back: %q", j.Name, i+1, line, j.Read)
		}
	}
	at := 0
	for _, line := range j.Read {
		if at < len(j.Acknowledged) && line == j.Acknowledged[at] {
			at++
		}
	}
	if whole && at < len(j.Acknowledged) {
		f.add(RuleOrder, "journal %s: line %d, %q, is not where it was acknowledged; read back: %q", j.Name, at+1, j.Acknowledged[at], j.Read)
	}
}
