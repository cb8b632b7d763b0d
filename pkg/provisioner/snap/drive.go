package snap

import (
	"context"
	"errors"
	"fmt"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// maxSteps bounds one drive: an exposure takes 5 steps, a withdrawal 3 and one
// for each controller.
const maxSteps = 64

// step is one change of the service's state. name says which change, on what.
type step struct {
	name string
	run  func(ctx context.Context) error
}

// drive takes the steps that next asks for until it asks for none. next reads
// the state anew each time, so a step whose answer was lost, or that somebody
// else has taken, counts as taken. A step that changed nothing ends the drive
// with its error.
func drive(ctx context.Context, next func(ctx context.Context) (*step, error)) error {
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
	return fmt.Errorf("not settled after %d steps, somebody else changes the same subsystem: %w", maxSteps, provisioner.ErrBusy)
}
