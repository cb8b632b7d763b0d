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

// Range is a stretch of a volume, in bytes.
type Range struct{ Offset, Length int64 }

// Unlogged are the stretches that were written more often than the target's log
// tells. The target logs a write after the file has taken it, so one that is
// under way is among them for an instant: read the log again.
func (b Below) Unlogged(logged []writelog.Write) []Range {
	unlogged, _ := b.compare(logged)
	return unlogged
}

// access is one write to a stretch: to the file, or in the log.
type access struct {
	at     time.Duration
	logged bool
}

// compare counts, for each stretch, how often it was written and how often the
// log says so, since a write may come in any pieces. unlogged was written more
// often; missing was, at the time of a record, written less often than the log
// had said by then.
func (b Below) compare(logged []writelog.Write) (unlogged, missing []Range) {
	var bounds []int64
	for _, w := range slices.Concat(b.Writes, logged) {
		bounds = append(bounds, w.Offset, w.Offset+w.Length)
	}
	slices.Sort(bounds)
	bounds = slices.Compact(bounds)
	stretches := make([][]access, len(bounds))
	note := func(w writelog.Write, isLogged bool) {
		from, _ := slices.BinarySearch(bounds, w.Offset)
		for i := from; bounds[i] < w.Offset+w.Length; i++ {
			stretches[i] = append(stretches[i], access{at: w.Monotonic, logged: isLogged})
		}
	}
	for _, w := range b.Writes {
		note(w, false)
	}
	for _, w := range logged {
		note(w, true)
	}
	for i, all := range stretches {
		more, less := b.balance(all)
		if more {
			unlogged = join(unlogged, bounds[i], bounds[i+1])
		}
		if less {
			missing = join(missing, bounds[i], bounds[i+1])
		}
	}
	return unlogged, missing
}

// balance goes through the accesses to one stretch. What was logged after the
// record beneath was read may not be in it yet.
func (b Below) balance(all []access) (more, less bool) {
	slices.SortStableFunc(all, func(a, b access) int { return cmp.Compare(a.at, b.at) })
	ahead := 0
	for _, a := range all {
		if !a.logged {
			ahead++
			continue
		}
		ahead--
		less = less || ahead < 0 && a.at <= b.ReadAt
	}
	return ahead > 0, less
}

// join adds a stretch to a list, as part of the last one if that ends there.
func join(list []Range, from, to int64) []Range {
	if last := len(list) - 1; last >= 0 && list[last].Offset+list[last].Length == from {
		list[last].Length += to - from
		return list
	}
	return append(list, Range{Offset: from, Length: to - from})
}

// checkBelow wants the log of the target to tell of each write that reached the
// file, and of none that did not.
func checkBelow(f *findings, logged []writelog.Write, below Below) {
	checkLog(f, "the recorder beneath the target", below.Writes)
	unlogged, missing := below.compare(logged)
	if n := len(unlogged); n > 0 {
		f.add(RuleBelow, "%d stretches were written more often than the target's log tells, the first of %d bytes at offset %d",
			n, unlogged[0].Length, unlogged[0].Offset)
	}
	if n := len(missing); n > 0 {
		f.add(RuleBelow, "%d stretches of which the target's log tells a write were not written by then, the first of %d bytes at offset %d",
			n, missing[0].Length, missing[0].Offset)
	}
}
