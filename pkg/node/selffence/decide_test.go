package selffence

import (
	"testing"
	"time"
)

const second = time.Second

// TestDecide goes through every state and what is done in it, at 10 s, with a
// lease until 20 s or none, and one third of the watchdog's timeout over or not.
func TestDecide(t *testing.T) {
	for _, phase := range []phase{unknown, unbound, bound, lapsed} {
		for bits := range 16 {
			open, cleared, patient, ended := bits&1 != 0, bits&2 != 0, bits&4 != 0, bits&8 != 0
			s := state{phase: phase, open: open, clear: cleared, end: 20 * second, duration: 20 * second}
			now := 10 * second
			if ended {
				now = 20 * second
			}
			s.patience = now // just over
			if patient {
				s.patience = time.Hour
			}
			good := phase == unbound || phase == bound && !ended
			over := phase == lapsed || phase == bound && ended
			want := plan{
				open: !open && (good || cleared), feed: open && (good || cleared), check: !good && !cleared,
				withdraw: !good && !cleared && (over || phase == unknown && !patient),
			}
			if got := s.decide(now); got != want {
				t.Errorf("phase %d, open=%v clear=%v patient=%v ended=%v: %+v, want %+v", phase, open, cleared, patient, ended, got, want)
			}
			if term, ok := s.term, s.good(now); ok != good || (term != 0) != (phase == bound && ended) {
				t.Errorf("phase %d, ended=%v: may show: %v, term %d", phase, ended, ok, term)
			}
		}
	}
}

// TestBeats: what each answered or unanswered beat does to the lease.
func TestBeats(t *testing.T) {
	cases := []struct {
		name       string
		before     state
		begun, now time.Duration
		answered   bool
		offers     bool
		phase      phase
		end        time.Duration
	}{
		{"the first beat gives no lease, a predecessor's stands", state{open: true}, 1, 2, false, false, unknown, 0},
		{"once it is answered, none stands", state{open: true}, 1, 2, true, false, unbound, 0},
		{"without a watchdog none is given", state{phase: unbound}, 1, 2, true, false, unbound, 0},
		{"the first lease binds before it is answered", state{phase: unbound, open: true}, 1, 2, false, true, bound, 1 + 20},
		{"a renewal counts from its begin", state{phase: bound, open: true, end: 21}, 10, 15, true, true, bound, 10 + 20},
		{"one that is not answered renews nothing", state{phase: bound, open: true, end: 21}, 10, 15, false, true, bound, 21},
		{"an answer that comes after the end is too late", state{phase: bound, open: true, end: 21}, 10, 21, true, true, lapsed, 21},
		{"also one to a renewal that was begun after it", state{phase: bound, open: true, end: 21}, 22, 23, true, true, lapsed, 21},
		{"what has ended begins again when nothing is shown", state{phase: lapsed, open: true, clear: true, end: 21}, 30, 31, true, true, bound, 30 + 20},
		{"and not while something is", state{phase: lapsed, open: true, end: 21}, 30, 31, true, true, lapsed, 21},
		{"nor by a beat that took longer than a lease", state{phase: lapsed, open: true, clear: true, end: 21}, 30, 50, true, true, lapsed, 21},
		{"a beat without a lease takes the promise back", state{phase: lapsed, end: 21}, 30, 31, true, false, unbound, 21},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := c.before
			s.duration, s.end = 20*second, s.end*second
			if offers := s.begin(c.begun * second); offers != c.offers {
				t.Errorf("offers a lease: %v, want %v", offers, c.offers)
			}
			if c.answered {
				s.answered(c.now * second)
			}
			if s.phase != c.phase || s.end != c.end*second {
				t.Errorf("phase %d until %s, want %d until %s", s.phase, s.end, c.phase, c.end*second)
			}
		})
	}
}

// TestEnter: a right to show is of one term, and what SNAP said before a call
// began to show proves nothing.
func TestEnter(t *testing.T) {
	s := state{phase: bound, open: true, clear: true, duration: 20 * second, end: 20 * second}
	if !s.enter(1*second, 0) || s.clear {
		t.Fatal("a good lease lets no call in, or what is shown is forgotten")
	}
	s.seen(s.asked)
	if s.clear {
		t.Error("it counts as clear while a call is under way")
	}
	s.leave()
	s.seen(0)
	if s.clear {
		t.Error("it counts as clear by what SNAP said before")
	}
	s.seen(s.asked)
	if !s.clear {
		t.Error("it does not count as clear")
	}
	if s.enter(20*second, 0) {
		t.Error("a call was let in after the end")
	}
	s.begin(21 * second)
	s.answered(22 * second)
	if s.enter(23*second, 0) {
		t.Error("a right of the term before still counts")
	}
	if !s.enter(23*second, 1) {
		t.Error("the new term lets no call in")
	}
}

// TestShut: a watchdog is stopped only if that can do no harm, and no lease is
// given after.
func TestShut(t *testing.T) {
	for _, phase := range []phase{unknown, unbound, bound, lapsed} {
		for _, clear := range []bool{false, true} {
			s := state{phase: phase, clear: clear, open: true}
			if got := s.shut(); got != (clear || phase == unbound) {
				t.Errorf("phase %d, clear=%v: stopped: %v", phase, clear, got)
			}
			if s.begin(second) {
				t.Errorf("phase %d: gives a lease without a watchdog", phase)
			}
		}
	}
}

// TestGrace is the sum of docs/decisions/0007.
func TestGrace(t *testing.T) {
	if got, want := grace(10*second, 5*second), 35*second+300*time.Millisecond; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
