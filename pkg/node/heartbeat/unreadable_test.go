package heartbeat

import (
	"errors"
	"testing"
	"time"
)

// TestUnreadable: an object that could not be read is read again with the next beat.
func TestUnreadable(t *testing.T) {
	s := newFixture(t, nil)
	s.unreadable = errors.New("no route")
	for range 2 {
		if err := s.h.Beat(t.Context()); !errors.Is(err, s.unreadable) {
			t.Errorf("got %v", err)
		}
	}
	s.unreadable = nil
	s.beat()
	s.want("in the end", 1, 1, 4)
}

// TestWhatIsToldHoldsNoHeartbeatUp: the Lease is renewed though the object cannot be
// written.
func TestWhatIsToldHoldsNoHeartbeatUp(t *testing.T) {
	s := newFixture(t, nil)
	s.beat()
	s.refuse = func(lease bool) error {
		if lease {
			return nil
		}
		return errors.New("no room")
	}
	s.state.SNAPReady = false
	for range 3 {
		s.clock.Step(10 * time.Second)
		if err := s.h.Beat(t.Context()); err == nil {
			t.Error("what could not be told is not tried again soon")
		}
		if l, _ := s.lease(); !l.Spec.RenewTime.Time.Equal(s.clock.Now()) {
			t.Errorf("the Lease was not renewed: %s", l.Spec.RenewTime)
		}
	}
}
