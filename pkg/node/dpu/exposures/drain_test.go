package exposures

import (
	"testing"
	"time"
)

// TestDrain: what was on its way is waited for as long as the storage may take over it, counted from
// when it was first asked for, and for each attachment and each thing that was sent by itself.
func TestDrain(t *testing.T) {
	k := newKit(t, nil)
	want := func(attachment, sent string, want time.Duration) {
		t.Helper()
		if got := k.Undrained(attachment, sent); got != want {
			t.Errorf("after %s: %s of %s takes %s more, want %s", k.clock.Now(), sent, attachment, got, want)
		}
	}
	step := func(d time.Duration) { k.clock.SetTime(k.clock.Now().Add(d)) }
	if k.Drain() != drainTime {
		t.Errorf("the storage may take %s", k.Drain())
	}
	want("a", "x", drainTime)
	step(drainTime - time.Nanosecond)
	want("a", "x", time.Nanosecond)
	want("b", "x", drainTime)
	want("a", "y", drainTime)
	step(time.Nanosecond)
	want("a", "x", 0)
	step(time.Hour)
	want("a", "x", 0)
}

// TestDrainIsForgotten: what is drained is known for an hour, so that a driver that runs for years does
// not keep all that it ever waited for. Asked for later it is waited for once more.
func TestDrainIsForgotten(t *testing.T) {
	k := newKit(t, nil)
	k.Undrained("a", "x")
	k.clock.SetTime(k.clock.Now().Add(drainTime + forgetAfter))
	k.Undrained("b", "x")
	if got := k.Undrained("a", "x"); got != 0 {
		t.Errorf("forgotten too early: it takes %s", got)
	}
	k.clock.SetTime(k.clock.Now().Add(time.Nanosecond))
	k.Undrained("c", "x")
	if n := len(k.drain.asked); n != 2 {
		t.Errorf("%d are kept, want those of b and c", n)
	}
	if got := k.Undrained("a", "x"); got != drainTime {
		t.Errorf("it takes %s", got)
	}
}
