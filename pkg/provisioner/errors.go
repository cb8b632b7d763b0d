package provisioner

import (
	"context"
	"errors"
	"fmt"
)

// The kinds of failure a platform reports. Implementations wrap them with
// text that says what was tried, on what, and what to do about it.
var (
	// ErrInvalid: the request can never succeed as written.
	ErrInvalid = errors.New("invalid request")
	// ErrNotFound: the volume, node or device named does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists: the name is taken by something with other properties.
	ErrExists = errors.New("exists with other properties")
	// ErrInUse: the object is held elsewhere; releasing it there helps.
	ErrInUse = errors.New("in use")
	// ErrExhausted: no room, no free function, no capacity.
	ErrExhausted = errors.New("exhausted")
	// ErrOutOfRange: the size is outside what the platform can make.
	ErrOutOfRange = errors.New("out of range")
	// ErrPrecondition: the state of the system forbids it now; repeating
	// does not help until that state changes.
	ErrPrecondition = errors.New("precondition failed")
	// ErrUnsupported: this platform cannot do this at all.
	ErrUnsupported = errors.New("not supported")
	// ErrToken: the place from which a list is to go on is none that was
	// given out; begin the list anew.
	ErrToken = errors.New("unknown place in a list")
	// ErrBusy: another operation on the same object is under way; repeat.
	ErrBusy = errors.New("busy")
	// ErrUnavailable: something needed for it cannot be reached; repeat.
	ErrUnavailable = errors.New("unavailable")
	// ErrSilent is the ErrUnavailable of something that does not answer at all. What
	// answers with a refusal is there.
	ErrSilent = fmt.Errorf("no answer: %w", ErrUnavailable)
)

// Uncertain reports whether an operation that ended with err may have had an
// effect, or may yet: such a call has to be repeated, or undone, before its
// outcome is known. Every other error is final: nothing was left behind.
func Uncertain(err error) bool {
	return errors.Is(err, ErrBusy) || errors.Is(err, ErrUnavailable) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
