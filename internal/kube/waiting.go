package kube

import (
	"errors"
	"fmt"
	"time"
)

// StatusGrace is how long a wait that belongs to the normal course of things is
// left out of the status: most volumes and attachments are ready before, and
// then need one write instead of several.
const StatusGrace = 2 * time.Second

// GraceLeft is what is left of StatusGrace for a wait that began at since: from 0 to
// StatusGrace, also where since was taken from a clock that is ahead.
func GraceLeft(since, now time.Time) time.Duration {
	return min(StatusGrace, max(0, StatusGrace-now.Sub(since)))
}

// Waiting is what a phase returns when it can go no further until something
// in the cluster changes. It is not a failure: a watch starts the next pass.
type Waiting struct {
	// Message says what is waited for, for the object's status.
	Message string
	// Since is when a wait of the normal course began; zero for a wait that
	// the user has to learn of at once.
	Since time.Time
	// RetryAfter is when the next pass has to start even if no watch starts
	// it; zero if a watch always does.
	RetryAfter time.Duration
}

// Error makes Waiting an error.
func (w *Waiting) Error() string { return w.Message }

// WaitFor is a wait that the status tells at once.
func WaitFor(format string, args ...any) error {
	return &Waiting{Message: fmt.Sprintf(format, args...)}
}

// WaitSince is a wait of the normal course that began at since: the status
// tells it once it has lasted for StatusGrace.
func WaitSince(since time.Time, format string, args ...any) error {
	return &Waiting{Message: fmt.Sprintf(format, args...), Since: since}
}

// WaitRetry is a wait that the status tells at once, and that has to be looked
// at again after a time because no watch reports its end.
func WaitRetry(after time.Duration, format string, args ...any) error {
	return &Waiting{Message: fmt.Sprintf(format, args...), RetryAfter: after}
}

// Outcome is what the phases of one pass came to.
type Outcome struct {
	// Message for the object's status: what is waited for, or what failed; ""
	// if nothing is left to do.
	Message string
	// StatusAfter is how long the message can stay unwritten, because it
	// reports a young wait of the normal course; 0: write it now.
	StatusAfter time.Duration
	// RetryAfter is when the next pass has to start without a watch; 0: never.
	RetryAfter time.Duration
	// Err is what the reconciler has to return; nil for a wait.
	Err error
}

// Waits reports whether the pass ended with a wait.
func (o Outcome) Waits() bool { return o.Err == nil && o.Message != "" }

// Settle splits what the phases of a pass returned into what the status says
// and what the reconciler returns.
func Settle(err error, now time.Time) Outcome {
	if err == nil {
		return Outcome{}
	}
	var w *Waiting
	if !errors.As(err, &w) {
		return Outcome{Message: err.Error(), Err: err}
	}
	out := Outcome{Message: w.Message, RetryAfter: w.RetryAfter}
	if !w.Since.IsZero() {
		out.StatusAfter = GraceLeft(w.Since, now)
	}
	return out
}
