package proof

import (
	"slices"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/reference/showlog"
	"github.com/moor-storage/moor/reference/writelog"
)

// show has the holder of an epoch show the volume from now on. What it has shown since before ends.
func (s *simulator) show(holder string, number int64) {
	s.now++
	for i := range s.h.Exposures {
		if x := &s.h.Exposures[i]; x.DPU == holder && (!x.Ended || x.End > s.now) {
			x.End, x.Ended = s.now, true
		}
	}
	s.h.Exposures = append(s.h.Exposures, showlog.Exposure{DPU: holder, Begin: s.now})
	s.shownUnder = append(s.shownUnder, number)
}

// leave ends an epoch: the holder withdraws the volume and says so, or the storage turns it
// away, and its host sees the volume for longer, or for good.
func (s *simulator) leave() moorv1alpha1.ReceiptKind {
	s.now++
	x := &s.h.Exposures[len(s.h.Exposures)-1]
	if s.rand.IntN(3) != 0 {
		x.End, x.Ended = s.now, true
		return moorv1alpha1.ReceiptDPU
	}
	if s.rand.IntN(2) == 0 {
		x.End, x.Ended = s.now+time.Duration(s.rand.IntN(20)), true
	}
	return moorv1alpha1.ReceiptStorage
}

func (s *simulator) read(holder string) {
	for range s.rand.IntN(3) {
		s.now++
		s.h.Reads = append(s.h.Reads, writelog.Access{DPU: holder, Monotonic: s.now})
	}
}

func strangersRead(s *simulator) bool {
	if len(s.h.Reads) == 0 {
		return false
	}
	s.h.Reads[s.rand.IntN(len(s.h.Reads))].DPU = "stranger"
	return true
}

// former is a DPU that has no right any more, and a time when that had been seen.
func (s *simulator) former() (dpu string, since time.Duration, ok bool) {
	end := s.h.States[len(s.h.States)-1]
	var found []string
	_, last := s.spans()
	for dpu, number := range last {
		if number <= end.over() {
			found = append(found, dpu)
		}
	}
	if len(found) == 0 {
		return "", 0, false
	}
	slices.Sort(found)
	return found[s.rand.IntN(len(found))], end.At + 1, true
}

func lateRead(s *simulator) bool {
	dpu, since, ok := s.former()
	if ok {
		s.h.Reads = append(s.h.Reads, writelog.Access{DPU: dpu, Monotonic: since})
	}
	return ok
}

func shownByStranger(s *simulator) bool {
	if len(s.h.Exposures) == 0 {
		return false
	}
	s.h.Exposures[s.rand.IntN(len(s.h.Exposures))].DPU = "stranger"
	return true
}

// shownEarly lets a DPU show the volume before its first epoch.
func shownEarly(s *simulator) bool {
	first, _ := s.spans()
	for _, i := range s.rand.Perm(len(s.h.States)) {
		state := s.h.States[i]
		if state.held() && state.NotBefore > 1 && first[state.Holder] == state.Epoch {
			s.h.Exposures = append(s.h.Exposures, showlog.Exposure{DPU: state.Holder, Begin: state.NotBefore - 1})
			return true
		}
	}
	return false
}

func shownLate(s *simulator) bool {
	dpu, since, ok := s.former()
	if ok {
		s.h.Exposures = append(s.h.Exposures, showlog.Exposure{DPU: dpu, Begin: since})
	}
	return ok
}

// shownOn lets a DPU show the volume after it has given its word that it does not.
func shownOn(s *simulator) bool {
	_, last := s.spans()
	for _, i := range s.rand.Perm(len(s.h.Exposures)) {
		x, number := &s.h.Exposures[i], s.shownUnder[i]
		over := slices.IndexFunc(s.h.States, func(state State) bool { return state.over() >= number })
		if over < 0 || last[x.DPU] != number || !slices.ContainsFunc(s.h.States[over].Receipts, func(r moorv1alpha1.Receipt) bool {
			return r.Epoch == number && r.Kind == moorv1alpha1.ReceiptDPU
		}) {
			continue
		}
		if x.End = s.h.States[over].At + 1; s.rand.IntN(2) == 0 {
			x.Ended = false
		}
		return true
	}
	return false
}
