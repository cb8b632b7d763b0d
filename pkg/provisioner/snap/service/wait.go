package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// DefaultHotplugLimit is how many functions can be plugged in at a time: the
// PCI switch of a BlueField has at most 32 ports, and one is for the static
// functions. The service does not tell.
const DefaultHotplugLimit = 31

// DefaultPlugWait is how long Expose waits for the host to enumerate a function
// before it says that it has to be repeated.
const DefaultPlugWait = 500 * time.Millisecond

// plugPoll is the pause between two looks at the host's progress: the service
// has no events.
const plugPoll = 20 * time.Millisecond

// ErrNotYet says that the host has not done its part; it may yet.
var ErrNotYet = fmt.Errorf("the host is slow, off or hung: %w", provisioner.ErrUnavailable)

// Patiently repeats look while it says errNotYet, for a short time.
func (s *Service) Patiently(ctx context.Context, look func() error) error {
	until := s.clock.Now().Add(s.plugWait)
	for {
		err := look()
		if !errors.Is(err, ErrNotYet) || !s.clock.Now().Before(until) {
			return err
		}
		timer := s.clock.NewTimer(plugPoll)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}
