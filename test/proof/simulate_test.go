package proof

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/reference/writelog"
)

// simulator plays a lawful volume: grants, writes, fences, receipts.
type simulator struct {
	rand *rand.Rand
	dpus int
	now  time.Duration
	h    History
	// epochs are the true epochs of the writes, and shownUnder those of the exposures, by index.
	epochs     []int64
	shownUnder []int64
	receipts   []moorv1alpha1.Receipt
	// ended is when the last epoch ended.
	ended time.Duration
	lines int
}

// lawful plays so many epochs among so many DPUs. The claim is watched from
// some instant on.
func lawful(r *rand.Rand, dpus, epochs int) *simulator {
	s := &simulator{rand: r, dpus: dpus, now: 1, h: History{Volume: "v", Below: &Below{}, Journals: []Journal{{Name: "j"}}}}
	s.see(State{Phase: moorv1alpha1.ClaimFree})
	for number := range int64(epochs) {
		s.play(number + 1)
	}
	if r.IntN(2) == 0 { // the last epoch goes on
		s.h.States = s.h.States[:len(s.h.States)-1]
	}
	if epochs <= keptReceipts {
		s.h.States = s.h.States[r.IntN(len(s.h.States)):]
	}
	return s
}

// play plays one epoch, from grant to receipt.
func (s *simulator) play(number int64) {
	holder := fmt.Sprintf("dpu-%d", s.rand.IntN(s.dpus))
	held := State{Phase: moorv1alpha1.ClaimGranted, Holder: holder, Epoch: number}
	if s.rand.IntN(4) != 0 {
		held.NotBefore = max(0, s.ended-time.Duration(s.rand.IntN(2)))
	}
	s.see(held)
	s.show(holder, number)
	s.write(holder, number)
	if s.rand.IntN(2) == 0 {
		held.Phase = moorv1alpha1.ClaimFencing
		s.see(held)
		s.write(holder, number)
	}
	s.receipts = append(s.receipts, moorv1alpha1.Receipt{Kind: s.leave(), Holder: holder, Epoch: number})
	s.receipts = s.receipts[max(0, len(s.receipts)-keptReceipts):]
	s.now++
	s.ended = s.now
	s.see(State{Phase: moorv1alpha1.ClaimFree, Epoch: number})
}

// see records a state, late by an instant or none.
func (s *simulator) see(state State) {
	s.now++
	state.Receipts = slices.Clone(s.receipts)
	state.At = s.now + time.Duration(s.rand.IntN(2))
	s.h.States = append(s.h.States, state)
}

func (s *simulator) write(holder string, number int64) {
	for range s.rand.IntN(4) {
		s.read(holder)
		s.now++
		s.h.Writes = append(s.h.Writes, writelog.Write{Seq: uint64(len(s.h.Writes) + 1), DPU: holder, Offset: int64(s.rand.IntN(3)) * 4096, Length: 4096, Monotonic: s.now})
		s.epochs = append(s.epochs, number)
		s.reach(s.h.Writes[len(s.h.Writes)-1])
		s.lines++
		line, j := fmt.Sprintf("line-%d", s.lines), &s.h.Journals[0]
		acknowledged := s.rand.IntN(4) != 0
		if acknowledged {
			j.Acknowledged = append(j.Acknowledged, line)
		}
		if acknowledged || s.rand.IntN(2) == 0 {
			j.Read = append(j.Read, line)
		}
	}
}

// reach records what a write looks like beneath the target: one piece or two,
// before the target logs it.
func (s *simulator) reach(w writelog.Write) {
	b := s.h.Below
	pieces := []int64{w.Length}
	if s.rand.IntN(3) == 0 {
		pieces = []int64{1024, w.Length - 1024}
	}
	offset := w.Offset
	for _, length := range pieces {
		b.Writes = append(b.Writes, writelog.Write{Seq: uint64(len(b.Writes) + 1), DPU: "pid-7", Offset: offset, Length: length, Monotonic: w.Monotonic})
		offset += length
	}
	b.ReadAt = w.Monotonic
}

// corruption breaks a lawful history. It reports whether it found a place
// where what it does is unlawful, and which rules may be named.
type corruption struct {
	name  string
	apply func(*simulator) bool
	rules []Rule
}

var corruptions = []corruption{
	{"swap two runs", swapRuns, []Rule{RuleOneWriter}},
	{"late write", lateWrite, []Rule{RuleOneWriter}},
	{"early write", earlyWrite, []Rule{RuleOneWriter}},
	{"write of a stranger", strangersWrite, []Rule{RuleHeld}},
	{"lose a record", loseRecord, []Rule{RuleLog}},
	{"drop a receipt", dropReceipt, []Rule{RuleReceipt}},
	{"receipt for another", misnameReceipt, []Rule{RuleOneHolder}},
	{"duplicate epoch", duplicateEpoch, []Rule{RuleGrows, RuleOneHolder}},
	{"grant before the end", grantEarly, []Rule{RulePhases}},
	{"lose a line", loseLine, []Rule{RuleAcknowledged}},
	{"swap two lines", swapLines, []Rule{RuleOrder}},
	{"write beneath the log", hiddenWrite, []Rule{RuleBelow}},
	{"write that never came", inventedWrite, []Rule{RuleBelow}},
	{"read of a stranger", strangersRead, []Rule{RuleReaders}},
	{"late read", lateRead, []Rule{RuleReaders}},
	{"shown by a stranger", shownByStranger, []Rule{RuleShown}},
	{"shown early", shownEarly, []Rule{RuleShown}},
	{"shown late", shownLate, []Rule{RuleShown}},
	{"shown on", shownOn, []Rule{RuleWithdrawn}},
}

// spans are the first and the last epoch of each DPU.
func (s *simulator) spans() (first, last map[string]int64) {
	first, last = map[string]int64{}, map[string]int64{}
	for _, e := range s.everHeld() {
		if first[e.Holder] == 0 {
			first[e.Holder] = e.Epoch
		}
		last[e.Holder] = e.Epoch
	}
	return first, last
}

// everHeld are the epochs that Check can know of.
func (s *simulator) everHeld() []moorv1alpha1.Receipt {
	holders := map[int64]string{}
	for _, state := range s.h.States {
		for _, r := range state.Receipts {
			holders[r.Epoch] = r.Holder
		}
		if state.held() {
			holders[state.Epoch] = state.Holder
		}
	}
	var out []moorv1alpha1.Receipt
	for number, holder := range holders {
		out = append(out, moorv1alpha1.Receipt{Holder: holder, Epoch: number})
	}
	slices.SortFunc(out, func(a, b moorv1alpha1.Receipt) int { return int(a.Epoch - b.Epoch) })
	return out
}

// pair picks two writes of different DPUs, a before b, such that a's never
// held again once b's had held for the first time.
func (s *simulator) pair() (a, b int, ok bool) {
	first, last := s.spans()
	var found [][2]int
	for i := range s.h.Writes {
		for k := i + 1; k < len(s.h.Writes); k++ {
			if last[s.h.Writes[i].DPU] < first[s.h.Writes[k].DPU] {
				found = append(found, [2]int{i, k})
			}
		}
	}
	if len(found) == 0 {
		return 0, 0, false
	}
	pick := found[s.rand.IntN(len(found))]
	return pick[0], pick[1], true
}

// run is the run of the write at i: the writes around it of the same epoch.
func (s *simulator) run(i int) (from, to int) {
	for from = i; from > 0 && s.epochs[from-1] == s.epochs[i]; from-- {
	}
	for to = i + 1; to < len(s.epochs) && s.epochs[to] == s.epochs[i]; to++ {
	}
	return from, to
}

// relabel gives the writers to the log, which keeps its form.
func (s *simulator) relabel(dpus []string) {
	for i, dpu := range dpus {
		s.h.Writes[i].DPU = dpu
	}
}

func (s *simulator) writers() []string {
	var out []string
	for _, w := range s.h.Writes {
		out = append(out, w.DPU)
	}
	return out
}

func swapRuns(s *simulator) bool {
	a, b, ok := s.pair()
	if !ok {
		return false
	}
	from, to := s.run(a)
	begin, end := s.run(b)
	by := s.writers()
	s.relabel(slices.Concat(by[:from], by[begin:end], by[to:begin], by[from:to], by[end:]))
	return true
}

func lateWrite(s *simulator) bool {
	a, b, ok := s.pair()
	if !ok {
		return false
	}
	late := s.h.Writes[b]
	late.DPU = s.h.Writes[a].DPU
	s.h.Writes = slices.Insert(s.h.Writes, b+1, late)
	for i := range s.h.Writes {
		s.h.Writes[i].Seq = uint64(i + 1)
	}
	return true
}

// earlyWrite lets a DPU write before its first epoch, while the holder is idle.
func earlyWrite(s *simulator) bool {
	first, _ := s.spans()
	for _, i := range s.rand.Perm(len(s.h.States)) {
		state := s.h.States[i]
		if !state.held() || state.NotBefore <= 1 || first[state.Holder] != state.Epoch {
			continue
		}
		at := slices.IndexFunc(s.h.Writes, func(w writelog.Write) bool { return w.Monotonic >= state.NotBefore })
		if at < 0 {
			at = len(s.h.Writes)
		}
		s.h.Writes = slices.Insert(s.h.Writes, at, writelog.Write{DPU: state.Holder, Length: 4096, Monotonic: state.NotBefore - 1})
		s.number(s.h.Writes)
		return true
	}
	return false
}

func strangersWrite(s *simulator) bool {
	if len(s.h.Writes) == 0 {
		return false
	}
	s.h.Writes[s.rand.IntN(len(s.h.Writes))].DPU = "stranger"
	return true
}

func loseRecord(s *simulator) bool {
	if len(s.h.Writes) < 2 {
		return false
	}
	i := s.rand.IntN(len(s.h.Writes) - 1)
	s.h.Writes = slices.Delete(s.h.Writes, i, i+1)
	return true
}

// receipt picks a receipt in one of the states.
func (s *simulator) receipt() (state, receipt int, ok bool) {
	state = s.rand.IntN(len(s.h.States))
	n := len(s.h.States[state].Receipts)
	if n == 0 {
		return 0, 0, false
	}
	return state, s.rand.IntN(n), true
}

func dropReceipt(s *simulator) bool {
	i, k, ok := s.receipt()
	if ok {
		s.h.States[i].Receipts = slices.Delete(s.h.States[i].Receipts, k, k+1)
	}
	return ok
}

// misnameReceipt needs another record of the same epoch.
func misnameReceipt(s *simulator) bool {
	i, k, ok := s.receipt()
	if !ok {
		return false
	}
	named, number := 0, s.h.States[i].Receipts[k].Epoch
	for _, state := range s.h.States {
		if state.held() && state.Epoch == number || slices.ContainsFunc(state.Receipts, func(r moorv1alpha1.Receipt) bool { return r.Epoch == number }) {
			named++
		}
	}
	if named < 2 {
		return false
	}
	s.h.States[i].Receipts[k].Holder = "another"
	return true
}

// grant picks a grant that was seen to come after another state.
func (s *simulator) grant() (int, bool) {
	var found []int
	for i, state := range s.h.States {
		if i > 0 && state.Phase == moorv1alpha1.ClaimGranted && state.Epoch > 1 {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		return 0, false
	}
	return found[s.rand.IntN(len(found))], true
}

func duplicateEpoch(s *simulator) bool {
	i, ok := s.grant()
	if ok {
		s.h.States[i].Epoch -= 1 + int64(s.rand.IntN(int(s.h.States[i].Epoch-1)))
	}
	return ok
}

// grantEarly takes away that the claim was Free before a grant.
func grantEarly(s *simulator) bool {
	i, ok := s.grant()
	if !ok || i < 2 || !s.h.States[i-2].held() {
		return false
	}
	s.h.States = slices.Delete(s.h.States, i-1, i)
	return true
}

func loseLine(s *simulator) bool {
	j := &s.h.Journals[0]
	if len(j.Acknowledged) == 0 {
		return false
	}
	lost := j.Acknowledged[s.rand.IntN(len(j.Acknowledged))]
	j.Read = slices.DeleteFunc(j.Read, func(line string) bool { return line == lost })
	return true
}

func swapLines(s *simulator) bool {
	j := &s.h.Journals[0]
	if len(j.Acknowledged) < 2 {
		return false
	}
	i := s.rand.IntN(len(j.Acknowledged) - 1)
	a, b := slices.Index(j.Read, j.Acknowledged[i]), slices.Index(j.Read, j.Acknowledged[i+1])
	j.Read[a], j.Read[b] = j.Read[b], j.Read[a]
	return true
}

// hiddenWrite lets the target accept a write without a word.
func hiddenWrite(s *simulator) bool {
	b := s.h.Below
	if len(b.Writes) == 0 {
		return false
	}
	i := s.rand.IntN(len(b.Writes))
	b.Writes = slices.Insert(b.Writes, i, b.Writes[i])
	s.number(b.Writes)
	return true
}

// inventedWrite lets the target log a write that it did not do.
func inventedWrite(s *simulator) bool {
	b := s.h.Below
	if len(b.Writes) == 0 {
		return false
	}
	i := s.rand.IntN(len(b.Writes))
	b.Writes = slices.Delete(b.Writes, i, i+1)
	s.number(b.Writes)
	return true
}

func (s *simulator) number(writes []writelog.Write) {
	for i := range writes {
		writes[i].Seq = uint64(i + 1)
	}
}
