package kube

import (
	"errors"
	"fmt"
	"time"
)

// Waiting is what a phase returns when it can go no further until something
// in the cluster changes. It is no failure: a watch wakes the reconciler.
type Waiting struct {
	// Words say what is waited for, for the object's status.
	Words string
	// Since is when a wait began that every object goes through; zero for a
	// wait that somebody should know of at once.
	Since time.Time
}

// Error makes Waiting an error.
func (w *Waiting) Error() string { return w.Words }

// WaitFor is a wait that is worth telling at once.
func WaitFor(format string, args ...any) error {
	return &Waiting{Words: fmt.Sprintf(format, args...)}
}

// WaitSince is a wait that belongs to the normal course of things and began
// at since: it is worth a write only once it has lasted.
func WaitSince(since time.Time, format string, args ...any) error {
	return &Waiting{Words: fmt.Sprintf(format, args...), Since: since}
}

// Settle splits what a phase returned into the words for the status, how long
// those may be kept back (0: write them now; a normal wait younger than grace
// is kept back until it is that old), and the error to return, which is nil
// for a wait.
func Settle(err error, now time.Time, grace time.Duration) (words string, keepBack time.Duration, failure error) {
	if err == nil {
		return "", 0, nil
	}
	var w *Waiting
	if !errors.As(err, &w) {
		return err.Error(), 0, err
	}
	if w.Since.IsZero() {
		return w.Words, 0, nil
	}
	// A server whose clock is ahead shall not make it longer.
	return w.Words, min(grace, max(0, grace-now.Sub(w.Since))), nil
}
