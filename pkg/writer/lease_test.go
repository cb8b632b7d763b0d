package writer

import (
	"testing"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// The lease of the tests: it is over after 30.06 s, and its bound is 70.1 s.
const (
	leaseDuration = 30 * time.Second
	leaseGrace    = 40 * time.Second
)

func TestBound(t *testing.T) {
	p := Promise{leaseDuration, leaseGrace}
	near := func(got time.Duration, want float64) bool {
		return got.Seconds() >= want && got.Seconds() < want+0.000001
	}
	if !near(p.End(), 30/0.999*1.001) || !near(p.Bound(), (30/0.999+40)*1.001) {
		t.Errorf("end %s, bound %s", p.End(), p.Bound())
	}
}

func TestPromised(t *testing.T) {
	good := moorv1alpha1.DPULease{Sequence: 7, DurationMillis: 1, GraceMillis: 1}
	beat := moorv1alpha1.Heartbeat{Sequence: 7}
	cases := map[string]struct {
		state *moorv1alpha1.DPUState
		want  bool
	}{
		"no DPU":                     {nil, false},
		"no lease":                   {&moorv1alpha1.DPUState{Heartbeat: beat}, false},
		"a lease of this beat":       {&moorv1alpha1.DPUState{Heartbeat: beat, Lease: &good}, true},
		"a lease of another beat":    {&moorv1alpha1.DPUState{Heartbeat: moorv1alpha1.Heartbeat{Sequence: 8}, Lease: &good}, false},
		"a lease of no beat":         {&moorv1alpha1.DPUState{Lease: &moorv1alpha1.DPULease{DurationMillis: 1, GraceMillis: 1}}, false},
		"a lease without a duration": {&moorv1alpha1.DPUState{Heartbeat: beat, Lease: &moorv1alpha1.DPULease{Sequence: 7, GraceMillis: 1}}, false},
		"a lease without a grace":    {&moorv1alpha1.DPUState{Heartbeat: beat, Lease: &moorv1alpha1.DPULease{Sequence: 7, DurationMillis: 1}}, false},
	}
	for name, c := range cases {
		if _, got := Promised(c.state); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestJudgeLease: what is known at each time after the last renewal.
func TestJudgeLease(t *testing.T) {
	p, at := Promise{leaseDuration, leaseGrace}, time.Unix(1e9, 0)
	for _, given := range []bool{false, true} {
		for since, want := range map[time.Duration]struct{ ended, over bool }{
			0: {}, 30 * time.Second: {}, 30061 * time.Millisecond: {ended: true},
			70 * time.Second: {ended: true}, 70101 * time.Millisecond: {ended: true, over: true},
		} {
			l := JudgeLease(p, given, at, at.Add(since))
			if l.Ended != (given && want.ended) || l.Over() != (given && want.over) {
				t.Errorf("given %v, after %s: ended %v, over %v", given, since, l.Ended, l.Over())
			}
			if again := l.Again(p); (again > 0) != (given && !want.over) {
				t.Errorf("given %v, after %s: looks again after %s", given, since, again)
			}
		}
	}
}

// TestPromise: what the lease of the last beat says, also of the very first one.
func TestPromise(t *testing.T) {
	p, ok := Promised(&moorv1alpha1.DPUState{
		Heartbeat: moorv1alpha1.Heartbeat{Sequence: 1}, Lease: &moorv1alpha1.DPULease{Sequence: 1, DurationMillis: 30000, GraceMillis: 40000},
	})
	if !ok || p != (Promise{leaseDuration, leaseGrace}) {
		t.Errorf("%+v, %t", p, ok)
	}
}

// TestLeaseToTheNanosecond: when a lease has ended, when nothing is written any more, and when
// to look again, just before and at each bound.
func TestLeaseToTheNanosecond(t *testing.T) {
	p, at := Promise{leaseDuration, leaseGrace}, time.Unix(1e9, 0)
	for name, tc := range map[string]struct {
		since       time.Duration
		ended, over bool
		again       time.Duration
	}{
		"renewed":        {0, false, false, p.End()},
		"before the end": {p.End() - 1, false, false, 1},
		"at the end":     {p.End(), true, false, p.Bound() - p.End()},
		"before it":      {p.Bound() - 1, true, false, 1},
		"at the bound":   {p.Bound(), true, true, 0},
		"long after it":  {p.Bound() + time.Hour, true, true, 0},
	} {
		l := JudgeLease(p, true, at, at.Add(tc.since))
		if l.Ended != tc.ended || l.Over() != tc.over || l.Again(p) != tc.again {
			t.Errorf("%s: ended %t, over %t, looks again after %s", name, l.Ended, l.Over(), l.Again(p))
		}
		if none := JudgeLease(p, false, at, at.Add(tc.since)); none.Ended || none.Over() || none.Again(p) != 0 {
			t.Errorf("%s, not given: %+v", name, none)
		}
	}
	if over := (Lease{Given: true}); over.Again(p) != 0 {
		t.Errorf("what is over is looked at again after %s", over.Again(p))
	}
}
