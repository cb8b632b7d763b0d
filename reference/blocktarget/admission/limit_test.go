package admission

import (
	"testing"
	"time"
)

func TestReserve(t *testing.T) {
	t0 := time.Unix(1000, 0)
	type step struct {
		at    time.Duration
		bytes int64
		want  time.Duration
	}
	for name, tc := range map[string]struct {
		limits Limits
		steps  []step
	}{
		"none":  {Limits{}, []step{{0, 1 << 40, 0}, {0, 1 << 40, 0}}},
		"bytes": {Limits{BytesPerSecond: 1000}, []step{{0, 1000, 0}, {0, 500, 900 * time.Millisecond}, {0, 1, 1400 * time.Millisecond}, {2 * time.Second, 1, 0}}},
		"operations": {Limits{IOPS: 10}, []step{
			{0, 1 << 30, 0}, {0, 1, 0}, {0, 1, 100 * time.Millisecond}, {time.Hour, 1, 0}, {time.Hour, 1, 0}, {time.Hour, 1, 100 * time.Millisecond},
		}},
		"the tighter one counts": {Limits{BytesPerSecond: 1 << 20, IOPS: 2}, []step{{0, 0, 0}, {0, 4 << 20, 400 * time.Millisecond}, {0, 0, 3900 * time.Millisecond}}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &Limiter{}
			l.Set(tc.limits)
			for i, s := range tc.steps {
				if got := l.reserve(t0.Add(s.at), s.bytes).Round(time.Millisecond); got != s.want {
					t.Errorf("step %d: wait %s, want %s", i, got, s.want)
				}
			}
		})
	}
}
