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
		name     string
		err      error
		words    string
		keepBack time.Duration
		failure  error
	}{
		{name: "success"},
		{name: "failure", err: broken, words: "the server is gone", failure: broken},
		{name: "wait", err: WaitFor("policy %s", "p"), words: "policy p"},
		{name: "wrapped wait", err: fmt.Errorf("volume: %w", WaitFor("x")), words: "x"},
		{name: "young normal wait", err: WaitSince(now.Add(-500*time.Millisecond), "y"), words: "y", keepBack: 1500 * time.Millisecond},
		{name: "a clock that is ahead", err: WaitSince(now.Add(time.Hour), "y"), words: "y", keepBack: 2 * time.Second},
		{name: "old normal wait", err: WaitSince(now.Add(-2*time.Second), "y"), words: "y"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			words, keepBack, failure := Settle(tc.err, now, 2*time.Second)
			if words != tc.words || keepBack != tc.keepBack || !errors.Is(failure, tc.failure) {
				t.Errorf("got %q, %v, %v; want %q, %v, %v", words, keepBack, failure, tc.words, tc.keepBack, tc.failure)
			}
		})
	}
}
