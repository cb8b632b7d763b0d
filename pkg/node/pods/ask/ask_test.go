package ask

import (
	"context"
	"testing"
	"time"
)

// A call that has little time left uses what there is.
func TestBounded(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{time.Hour: time.Minute, 20 * time.Second: 17 * time.Second, 4 * time.Second: 4 * time.Second} {
		ctx, cancel := context.WithTimeout(t.Context(), left)
		bounded, end := Bounded(ctx, 0)
		got, _ := bounded.Deadline()
		if d := time.Until(got) - want; d > 0 || d < -time.Second {
			t.Errorf("of %s: %s, want %s", left, time.Until(got), want)
		}
		end()
		cancel()
	}
}
