package hostprobe

import (
	"fmt"
	"time"
)

// Answer is what came back from one look at the host, from nothing to all.
type Answer int

// The answers.
const (
	// Silence: nothing came within the time of a look. The host may be off,
	// its kernel may hang, or the link may be cut.
	Silence Answer = iota
	// Unreachable: this end of the link says that nobody is there.
	Unreachable
	// Refused: the host's kernel answers that nobody listens.
	Refused
	// Acknowledged: the host's kernel takes what is sent, and the process
	// there does not answer.
	Acknowledged
	// Echoed: a process on the host answers.
	Echoed
)

// answered reports whether something on the host is alive.
func (a Answer) answered() bool { return a >= Refused }

// Look is one look at the host.
type Look struct {
	Answer Answer
	// Words tell more, such as the kernel's error; may be empty.
	Words string
	// Began and Ended are when, by a monotonic clock.
	Began, Ended time.Time
}

// The default limits, and the time between two looks.
const (
	// Interval between the beginnings of two looks, and the longest look.
	Interval = 200 * time.Millisecond
	// DefaultTimeout is five looks.
	DefaultTimeout = time.Second
	// DefaultMisses keeps a DPU that could look only once or twice within
	// the timeout from declaring anybody dead.
	DefaultMisses = 3
)

// Limits say when silence is death: both have to be reached.
type Limits struct {
	// Timeout since the last answer.
	Timeout time.Duration
	// Misses in a row.
	Misses int
}

// Verdict is what is known of the host.
type Verdict int

// The verdicts.
const (
	// Unknown: it has not answered yet since this process began to look.
	Unknown Verdict = iota
	// Alive: it answers, or has not been silent for long enough.
	Alive
	// Dead: it answered once, and has been silent since for the limits.
	Dead
)

// opinion is the verdict with all that the next look needs to form one. The
// zero value is that of a DPU which has not looked yet.
type opinion struct {
	verdict  Verdict
	evidence string
	// misses is how many looks in a row were not answered, silent when the
	// first of them began.
	silent time.Time
	misses int
	// looked is when the last look ended.
	looked time.Time
}

// next forms the opinion after one more look.
//
// The time of silence counts from the first look that met it, not from the last
// answer: then a DPU that was itself asleep in between sees no silence that it
// has not listened to. For the same reason a gap between two looks, or within
// one, starts the count anew.
func (o opinion) next(l Look, limits Limits) opinion {
	overslept := l.Ended.Sub(l.Began) > 2*Interval
	asleep := overslept || (!o.looked.IsZero() && l.Began.Sub(o.looked) > 2*Interval)
	o.looked = l.Ended
	if l.Answer.answered() {
		return opinion{verdict: Alive, evidence: aliveWords(l), looked: l.Ended}
	}
	if o.verdict == Unknown {
		return o
	}
	if o.misses == 0 || asleep {
		o.silent, o.misses = l.Began, 0
	}
	if overslept {
		o.silent = l.Ended
	}
	o.misses++
	if o.verdict == Dead {
		return o // its evidence is that of the moment when it died
	}
	// Looks come in steps of Interval: the one nearest to the timeout decides.
	if since := l.Ended.Sub(o.silent); since+Interval/2 >= limits.Timeout && o.misses >= limits.Misses {
		o.verdict = Dead
		o.evidence = deadWords(l, since, o.misses)
	}
	return o
}

func aliveWords(l Look) string {
	switch l.Answer {
	case Refused:
		return with("the host's kernel answers, its node plugin does not run", l.Words)
	case Acknowledged:
		return with("hung: the host's kernel answers, its node plugin does not", l.Words)
	}
	return "the host's node plugin answers"
}

func deadWords(l Look, since time.Duration, misses int) string {
	words := fmt.Sprintf("silence on the link to the host for %s, %d looks in a row", since.Round(10*time.Millisecond), misses)
	if l.Answer == Unreachable {
		words += ", the link says that nobody is there"
	}
	return with(words, l.Words)
}

func with(words, more string) string {
	if more == "" {
		return words
	}
	return words + " (" + more + ")"
}
