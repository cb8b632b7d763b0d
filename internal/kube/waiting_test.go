package kube

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestSettle(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	broken := errors.New("the server is gone")
	for _, tc := range []struct {
		name  string
		err   error
		want  Outcome
		waits bool
	}{
		{name: "success"},
		{name: "failure", err: broken, want: Outcome{Message: "the server is gone", Err: broken}},
		{name: "wait", err: WaitFor("policy %s", "p"), want: Outcome{Message: "policy p"}, waits: true},
		{name: "wrapped wait", err: fmt.Errorf("volume: %w", WaitFor("x")), want: Outcome{Message: "x"}, waits: true},
		{name: "wait to look at again", err: WaitRetry(time.Minute, "pod %s", "p"), want: Outcome{Message: "pod p", RetryAfter: time.Minute}, waits: true},
		{
			name: "young normal wait", err: WaitSince(now.Add(-500*time.Millisecond), "y"),
			want: Outcome{Message: "y", StatusAfter: 1500 * time.Millisecond}, waits: true,
		},
		{name: "a clock that is ahead", err: WaitSince(now.Add(time.Hour), "y"), want: Outcome{Message: "y", StatusAfter: StatusGrace}, waits: true},
		{name: "old normal wait", err: WaitSince(now.Add(-StatusGrace), "y"), want: Outcome{Message: "y"}, waits: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Settle(tc.err, now)
			if got != tc.want || got.Waits() != tc.waits {
				t.Errorf("got %+v, waits %t; want %+v, waits %t", got, got.Waits(), tc.want, tc.waits)
			}
		})
	}
}
