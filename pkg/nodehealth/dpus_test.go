package nodehealth

import (
	"testing"
	"time"
)

// TestDPUByItsOwnName: a DPU is heard, and falls silent, whether a host has it or not; one
// that was never heard is Stale once it was waited for as long; and nothing is while the
// observer cannot hear.
func TestDPUByItsOwnName(t *testing.T) {
	p := newPlayer(t)
	sequence, renewed := int64(7), time.Unix(1e6, 0)
	want := func(when string, by string, want Beat) {
		t.Helper()
		if got := p.o.DPU(by); got != want {
			t.Errorf("%s: %s is %s, want %s", when, by, got, want)
		}
	}
	live := func(seconds int, beat func()) {
		for range seconds / 5 {
			p.pass(5, "b/host")
			beat()
		}
	}
	want("at first", "gone", Unknown)
	p.o.HearDPU("one", sequence, renewed)
	want("read, not heard", "one", Unknown)
	live(20, func() { sequence++; p.o.HearDPU("one", sequence, time.Time{}) })
	want("by its object", "one", Fresh)
	live(40, func() { renewed = renewed.Add(time.Second); p.o.HearDPU("one", sequence, renewed) })
	want("by its Lease", "one", Fresh)
	want("waited for", "gone", Stale)
	live(15, func() { p.o.HearDPU("one", sequence, renewed) })
	want("late", "one", Quiet)
	live(10, func() { p.o.HearDPU("one", sequence, renewed) })
	want("silent", "one", Stale)
	p.o.HearDPU("gone", 1, time.Time{})
	want("it has come", "gone", Unknown)

	deaf := newPlayer(t)
	deaf.o.DPU("gone")
	deaf.clock.SetTime(deaf.clock.Now().Add(time.Hour))
	if got := deaf.o.DPU("gone"); got != Unknown {
		t.Errorf("nothing was heard at all, and it is %s", got)
	}
}
