package selffence

import "time"

// phase is what is known of the promise that stands in the API server.
type phase int

const (
	// unknown: this process has just started. A predecessor's promise may stand.
	unknown phase = iota
	// unbound: a heartbeat without a lease was answered; no promise stands.
	unbound
	// bound: a promise stands, and its lease has not ended.
	bound
	// lapsed: the lease ended, and the promise has to be kept.
	lapsed
)

// state is all that decisions rest on. Times are of a clock that counts while
// the machine is suspended, too.
type state struct {
	// duration of a lease.
	duration time.Duration
	// patience is until when a process that has just started leaves what its
	// predecessor shows, since a heartbeat may still be answered.
	patience time.Duration

	phase phase
	// end of the lease, while bound.
	end time.Duration
	// term is one more after each end. A right to show is of one term.
	term int64
	// begun is when the heartbeat that is under way was begun, offered whether it
	// carries a lease.
	begun   time.Duration
	offered bool
	// open: the watchdog is open.
	open bool
	// clear: SNAP has said that it shows nothing, and no call to show anything has
	// begun since. asked counts those calls; running is how many are under way.
	clear   bool
	asked   int64
	running int
}

// plan is what to do now.
type plan struct {
	// open, or feed, the watchdog.
	open, feed bool
	// withdraw what is shown; check whether anything is.
	withdraw, check bool
}

// expire lets the lease end, if it is time.
func (s *state) expire(now time.Duration) {
	if s.phase == bound && now >= s.end {
		s.phase = lapsed
		s.term++
	}
}

// good reports whether it is allowed to show.
func (s *state) good(now time.Duration) bool {
	s.expire(now)
	return s.phase == unbound || s.phase == bound
}

// decide says what to do. A watchdog is fed, which opening it does too, while
// the lease is good or nothing is shown, and in no other case.
func (s *state) decide(now time.Duration) plan {
	harmless := s.good(now) || s.clear
	return plan{
		open: harmless && !s.open, feed: harmless && s.open,
		withdraw: !harmless && (s.phase == lapsed || now >= s.patience),
		check:    !harmless,
	}
}

// begin notes that a heartbeat is about to be sent, and says whether it has to
// carry a lease: never without a watchdog, and never while a predecessor's promise
// may stand. The first promise holds from when it is made: whether it was accepted
// is known only later.
func (s *state) begin(now time.Duration) bool {
	s.expire(now)
	s.begun, s.offered = now, s.open && s.phase != unknown
	if s.offered && s.phase == unbound {
		s.phase, s.end = bound, now+s.duration
	}
	return s.offered
}

// answered notes that the heartbeat was answered. The lease counts from when it was
// begun. One that has ended begins again only when what was shown is gone.
func (s *state) answered(now time.Duration) {
	s.expire(now)
	end := s.begun + s.duration
	switch {
	case !s.offered:
		s.phase = unbound
	case s.phase == bound:
		s.end = max(s.end, end)
	case s.phase == lapsed && s.clear && now < end:
		s.phase, s.end = bound, end
	}
}

// shut ends the use of the watchdog: no lease is given any more. It says whether
// the watchdog may be stopped: nothing is shown, or nothing was promised.
func (s *state) shut() bool {
	s.open = false
	return s.clear || s.phase == unbound
}

// enter lets a caller begin to show, if the right that was found under a term
// still stands.
func (s *state) enter(now time.Duration, term int64) bool {
	if !s.good(now) || term != s.term {
		return false
	}
	s.asked++
	s.running++
	s.clear = false
	return true
}

func (s *state) leave() { s.running-- }

// seen notes that SNAP shows nothing, as it said after asked had this value. It
// does not count if a call to show is under way, or was since.
func (s *state) seen(asked int64) {
	if s.running == 0 && asked == s.asked {
		s.clear = true
	}
}
