package blocktarget

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
			l := &limiter{}
			l.set(tc.limits)
			for i, s := range tc.steps {
				if got := l.reserve(t0.Add(s.at), s.bytes).Round(time.Millisecond); got != s.want {
					t.Errorf("step %d: wait %s, want %s", i, got, s.want)
				}
			}
		})
	}
}

// TestLimitsHold: a change of limits slows down who has the volume open, all of
// them together, and another one lets them go.
func TestLimitsHold(t *testing.T) {
	b := newBench(t)
	admin := b.admin("s", "s")
	one := open(t, b.address, b.rights.give("v", "dpu-1", "t1"), 0)
	two := open(t, b.address, b.rights.give("v", "dpu-2", "t2"), 0)
	write := func() time.Duration {
		start := time.Now()
		for i := range int64(2) {
			for _, d := range []*Device{one, two} {
				if _, err := d.WriteAt(make([]byte, 1<<20), i<<20); err != nil {
					t.Fatal(err)
				}
			}
		}
		return time.Since(start)
	}
	b.rights.set(func(r *rights) { r.limits = Limits{BytesPerSecond: LeastBytesPerSecond} })
	if err := admin.Adjust(t.Context(), "v"); err != nil {
		t.Fatal(err)
	}
	if took := write(); took < 250*time.Millisecond {
		t.Errorf("4 MiB at 8 MiB/s took %s", took)
	}
	b.rights.set(func(r *rights) { r.limits = Limits{IOPS: 4} })
	if err := admin.Adjust(t.Context(), "v"); err != nil {
		t.Fatal(err)
	}
	if took := write(); took < 500*time.Millisecond {
		t.Errorf("4 writes at 4 a second took %s", took)
	}
	// Who waits for his turn is let go by a fence.
	b.rights.set(func(r *rights) { r.limits = Limits{IOPS: 1} })
	if err := admin.Adjust(t.Context(), "v"); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = one.WriteAt(block(1), 0) }()
	start := time.Now()
	b.Revoke("v", "")
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("a revocation took %s", took)
	}
}
