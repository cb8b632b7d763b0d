package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// maxSteps bounds one drive: an exposure takes 5 steps, a withdrawal 3 and one
// for each controller.
const maxSteps = 64

// Step is one change of the service's state. name says which change, on what.
type Step struct {
	name string
	run  func(ctx context.Context) error
}

// Drive takes the steps that next asks for until it asks for none. next reads
// the state anew each time, so a step whose answer was lost, or that another
// has taken, counts as taken. A step that changed nothing ends the drive
// with its error.
func Drive(ctx context.Context, next func(ctx context.Context) (*Step, error)) error {
	tried := ""
	var failed error
	for range maxSteps {
		s, err := next(ctx)
		switch {
		case err != nil:
			return errors.Join(failed, err)
		case s == nil:
			return nil
		case s.name == tried && failed != nil:
			return failed
		case s.name == tried:
			return fmt.Errorf("%s: the service accepted it and shows no effect: %w", s.name, provisioner.ErrUnavailable)
		}
		tried, failed = s.name, s.run(ctx)
	}
	return fmt.Errorf("not settled after %d steps, another client changes the same subsystem: %w", maxSteps, provisioner.ErrBusy)
}

// NewStep makes a step.
func NewStep(name string, run func(context.Context) error) *Step { return &Step{name, run} }
