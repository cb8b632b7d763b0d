package patrol

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestTidyTimes: after a withdrawal what is left is looked for soon, then at longer and longer times, as
// long as something is left, and no longer than to the next round. Another withdrawal begins anew.
func TestTidyTimes(t *testing.T) {
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		withdrawn []time.Duration
		// until is when the host lets go of the function.
		until time.Duration
		fails bool // SNAP does not say how many are left
		tidy  []time.Duration
	}{
		"nothing is withdrawn":                  {until: time.Hour},
		"the host has let go":                   {withdrawn: []time.Duration{100 * ms}, tidy: []time.Duration{350 * ms}},
		"it lets go soon":                       {withdrawn: []time.Duration{100 * ms}, until: time.Second, tidy: []time.Duration{350 * ms, 850 * ms, 1850 * ms}},
		"it does not before the next round":     {withdrawn: []time.Duration{100 * ms}, until: time.Hour, tidy: []time.Duration{350 * ms, 850 * ms, 1850 * ms, 3850 * ms, 7850 * ms}},
		"whether it has cannot be told":         {withdrawn: []time.Duration{100 * ms}, fails: true, tidy: []time.Duration{350 * ms, 850 * ms, 1850 * ms, 3850 * ms, 7850 * ms}},
		"another is withdrawn":                  {withdrawn: []time.Duration{100 * ms, 2 * time.Second}, until: 3 * time.Second, tidy: []time.Duration{350 * ms, 850 * ms, 1850 * ms, 2250 * ms, 2750 * ms, 3750 * ms}},
		"another is withdrawn before the first": {withdrawn: []time.Duration{100 * ms, 200 * ms}, tidy: []time.Duration{450 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var tidied []time.Duration
				k.service.tidy = func() (removed, left int, err error) {
					tidied = append(tidied, time.Since(begin))
					switch {
					case tc.fails:
						return 0, 0, errDown
					case time.Since(begin) < tc.until:
						return 0, 1, nil
					}
					return 1, 0, nil
				}
				withdrawn := make(chan struct{})
				k.o.Clock, k.o.Withdrawn = clock.RealClock{}, withdrawn
				rounds := k.rounds(t, func() {
					for _, at := range tc.withdrawn {
						time.Sleep(at - time.Since(begin))
						withdrawn <- struct{}{}
					}
					time.Sleep(2*period + time.Second - time.Since(begin))
				})
				if !slices.Equal(tidied, tc.tidy) {
					t.Errorf("looked for after %v, want %v", tidied, tc.tidy)
				}
				if !slices.Equal(rounds, []time.Duration{0, period, 2 * period}) {
					t.Errorf("rounds after %v", rounds)
				}
				if told := 1 + min(1, len(tidied)); !tc.fails && tc.until < time.Hour && k.changes != told { // that SNAP answers, and that one is free
					t.Errorf("told %d times, want %d", k.changes, told)
				}
			})
		})
	}
}

// rounds are when the patrol makes rounds while during runs, from there on.
func (k *kit) rounds(t *testing.T, during func()) (out []time.Duration) {
	t.Helper()
	begin := time.Now()
	k.service.listed = func() { out = append(out, time.Since(begin)) }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Start(ctx) }()
	during()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("it ends with %v", err)
	}
	return out
}

// TestRoundAtOnceWhenAServiceComes: it may have lost all that it showed, so the host does not wait for the
// rest of the period.
func TestRoundAtOnceWhenAServiceComes(t *testing.T) {
	k := newKit(t)
	synctest.Test(t, func(t *testing.T) {
		came := make(chan struct{})
		k.o.Clock, k.o.Came = clock.RealClock{}, came
		rounds := k.rounds(t, func() {
			time.Sleep(3 * time.Second)
			came <- struct{}{}
			time.Sleep(period + time.Second)
		})
		if !slices.Equal(rounds, []time.Duration{0, 3 * time.Second, 3*time.Second + period}) {
			t.Errorf("rounds after %v", rounds)
		}
	})
}

// TestTidyTells: that a function has come free is told, so that the DPU reports it; while nothing has, it
// is not.
func TestTidyTells(t *testing.T) {
	for name, tc := range map[string]struct {
		removed, left int
		err           error
		told          int
		more          bool
	}{
		"nothing was left":     {},
		"one is removed":       {removed: 1, told: 1},
		"two are":              {removed: 2, told: 1},
		"one is left":          {left: 1, more: true},
		"one of two is left":   {removed: 1, left: 1, told: 1, more: true},
		"SNAP does not answer": {err: provisioner.ErrUnavailable, more: true},
		"one of two does not":  {removed: 1, err: errors.New("away"), told: 1, more: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			k.service.tidy = func() (removed, left int, err error) { return tc.removed, tc.left, tc.err }
			if more := k.tidy(t.Context()); more != tc.more || k.changes != tc.told {
				t.Errorf("something may be left: %v, told %d times", more, k.changes)
			}
		})
	}
}
