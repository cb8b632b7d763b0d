package hostprobe

import (
	"fmt"
	"time"
)

// Answer is what came back from one probe of the host, from nothing to all.
type Answer int

// The answers.
const (
	// Silence: nothing came within the time of a probe. The host may be off,
	// its kernel may hang, or the link may be cut.
	Silence Answer = iota
	// Unreachable: this end of the link says that it leads to no host.
	Unreachable
	// Refused: the host's kernel answers that no process listens.
	Refused
	// Acknowledged: the host's kernel takes what is sent, and the process
	// there does not answer.
	Acknowledged
	// Echoed: a process on the host answers.
	Echoed
)

// answered reports whether something on the host is alive.
func (a Answer) answered() bool { return a >= Refused }

// Probe is the result of probing the host once.
type Probe struct {
	Answer Answer
	// Detail tells more, such as the kernel's error; may be empty.
	Detail string
	// Began and Ended are when, by a monotonic clock.
	Began, Ended time.Time
	// Worked is a time after which the host has begun I/O; zero if none is known.
	Worked time.Time
}

// The default limits, and the time between two probes.
const (
	// Interval between the beginnings of two probes, and the longest probe.
	Interval = 200 * time.Millisecond
	// DefaultTimeout is five probes.
	DefaultTimeout = time.Second
	// DefaultMisses keeps a DPU that could probe only once or twice within
	// the timeout from declaring its host dead.
	DefaultMisses = 3
	// pause is for how long a host that is silent on the link, and does I/O, may pause. One
	// in use writes every 5 s: that is Linux' vm.dirty_writeback_centisecs and ext4's commit.
	pause = 10 * time.Second
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
	// Unknown: it has not answered yet since this process began to probe.
	Unknown Verdict = iota
	// Alive: it answers, or has not been silent for long enough.
	Alive
	// Dead: it answered once, and has been silent since for the limits.
	Dead
)

// opinion is the verdict with all that the next probe needs to form one. The
// zero value is that of a DPU which has not probed yet.
type opinion struct {
	verdict  Verdict
	evidence string
	// misses is how many probes in a row were not answered, silent when the
	// first of them began.
	silent time.Time
	misses int
	// probed is when the last probe ended.
	probed time.Time
	// worked is a time in the silence after which the host has begun I/O.
	worked time.Time
}

// next forms the opinion after one more probe.
//
// The time of silence counts from the first probe that met it, not from the last
// answer: then a DPU that was itself asleep in between sees no silence that it
// has not listened to. For the same reason a gap between two probes, or within
// one, starts the count anew.
func (o opinion) next(p Probe, limits Limits) opinion {
	overslept := p.Ended.Sub(p.Began) > 2*Interval
	asleep := overslept || (!o.probed.IsZero() && p.Began.Sub(o.probed) > 2*Interval)
	o.probed = p.Ended
	if p.Answer.answered() {
		return opinion{verdict: Alive, evidence: aliveMessage(p), probed: p.Ended}
	}
	if o.verdict == Unknown {
		return o
	}
	if o.misses == 0 || asleep {
		o.silent, o.misses = p.Began, 0
	}
	if overslept {
		o.silent = p.Ended
	}
	o.misses++
	if o.verdict == Dead {
		return o // its evidence is that of the moment when it was found dead
	}
	if p.Worked.After(o.worked) {
		o.worked = p.Worked
	}
	// Probes come in steps of Interval: the one nearest to the timeout decides.
	since := p.Ended.Sub(o.silent)
	switch {
	case since+Interval/2 < limits.Timeout || o.misses < limits.Misses:
	case o.works(p.Ended, limits):
		o.evidence = "the host is silent on the link, and does I/O"
	default:
		o.verdict = Dead
		o.evidence = deadMessage(p, since, o.misses)
	}
	return o
}

// works reports whether I/O shows that the host lives, so that the silence is the link's. What it
// begins within a quarter of the timeout shows nothing: a host that dies may fall silent on the
// link a moment before its disks.
func (o opinion) works(now time.Time, limits Limits) bool {
	return o.worked.Sub(o.silent) >= limits.Timeout/4 && now.Sub(o.worked) < pause
}

func aliveMessage(p Probe) string {
	switch p.Answer {
	case Refused:
		return with("the host's kernel answers, its node plugin does not run", p.Detail)
	case Acknowledged:
		return with("hung: the host's kernel answers, its node plugin does not", p.Detail)
	}
	return "the host's node plugin answers"
}

func deadMessage(p Probe, since time.Duration, misses int) string {
	message := fmt.Sprintf("silence on the link to the host for %s, %d probes in a row", since.Round(10*time.Millisecond), misses)
	if p.Answer == Unreachable {
		message += ", the link says that the host cannot be reached"
	}
	return with(message, p.Detail)
}

func with(message, detail string) string {
	if detail == "" {
		return message
	}
	return message + " (" + detail + ")"
}
