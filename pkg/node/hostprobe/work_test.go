package hostprobe

import (
	"context"
	"testing"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestBegunAfter: only more ended I/O than was in flight shows that some was begun.
func TestBegunAfter(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	path := func(completed, inFlight int64) provisioner.Path {
		return provisioner.Path{Device: "d", Completed: completed, InFlight: inFlight}
	}
	cases := map[string]struct {
		before, now provisioner.Path
		begun       bool
	}{
		"nothing was done":           {path(5, 0), path(5, 0), false},
		"something was":              {path(5, 0), path(6, 0), true},
		"what was in flight ended":   {path(5, 3), path(8, 0), false},
		"and one more":               {path(5, 3), path(9, 0), true},
		"in flight, not known":       {path(5, -1), path(900, 0), false},
		"it is known now":            {path(5, 2), path(8, -1), true},
		"SNAP counts anew":           {path(5, 0), path(1, 0), false},
		"it does not count any more": {path(5, 0), path(0, -1), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := work{at: at, devices: map[string]provisioner.Path{"d": c.before, "another": path(1, 0)}}
			now := work{at: at.Add(Interval), devices: map[string]provisioner.Path{"d": c.now, "new": path(70, 0)}}
			got := begunAfter(before, now)
			if want := at.Add(-sampling); c.begun != got.Equal(want) || !c.begun && !got.IsZero() {
				t.Fatalf("begun after %v", got)
			}
			if late := begunAfter(work{}, now); !late.IsZero() {
				t.Fatalf("without an answer before: after %v", late)
			}
		})
	}
}

// TestWorkDelaysNoProbe: SNAP is asked in the background, once at a time, and only while
// the host is silent.
func TestWorkDelaysNoProbe(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	s := &script{clock: clock, answer: make(chan Answer, 1)}
	asked, answer := make(chan struct{}, 9), make(chan int64)
	w := NewWatcher(Options{Prober: s, Clock: clock, Limits: Limits{Timeout: 2 * time.Second}, Paths: func(ctx context.Context) []provisioner.Path {
		asked <- struct{}{}
		select {
		case n := <-answer:
			return []provisioner.Path{{Device: "d", Completed: n}}
		case <-ctx.Done():
			return nil
		}
	}})
	look := func(a Answer) {
		s.answer <- a
		w.probe(t.Context())
	}
	for _, a := range []Answer{Silence, Echoed, Silence} {
		look(a)
	}
	if len(asked) != 0 {
		t.Fatal("a host that is not known to be silent was asked for")
	}
	for n := range int64(5) {
		if look(Silence); w.worker.answer == nil {
			t.Fatalf("SNAP is not asked: %+v", w.Observed())
		}
		look(Silence) // asks no second time
		<-asked
		answer <- 10 * n
		w.asking.Wait()
		look(Silence) // takes that answer
	}
	if o := w.Observed(); !o.Alive || o.Evidence != "the host is silent on the link, and does I/O" {
		t.Fatalf("%+v", o)
	}
	for range 60 { // what SNAP does not answer holds no probe up
		look(Silence)
	}
	if w.worker.answer == nil {
		t.Fatal("SNAP is not asked any more")
	}
	<-asked
	answer <- 1000
	w.asking.Wait()
	if o := w.Observed(); o.Alive || len(asked) != 0 {
		t.Fatalf("asked %d times more: %+v", len(asked), o)
	}
}
