package writer

import (
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// skew is how much the clocks of two machines may differ in speed, as a part:
// quartz is specified within 0.0001, and NTP slews by at most 0.0005.
const skew = 0.001

// Promise is what a DPU has promised: it shows nothing after the duration of its
// lease without a renewal, and nothing that it sent lands after the grace.
type Promise struct{ Duration, Grace time.Duration }

// Promised is what a DPU promises with its last beat. A lease that is not of that
// beat was left by another program, which promised and is gone.
func Promised(d *moorv1alpha1.DPUState) (Promise, bool) {
	if d == nil || d.Lease == nil || d.Sequence <= 0 || d.Lease.Sequence != d.Sequence {
		return Promise{}, false
	}
	p := Promise{time.Duration(d.Lease.DurationMillis) * time.Millisecond, time.Duration(d.Lease.GraceMillis) * time.Millisecond}
	return p, p.Duration > 0 && p.Grace > 0
}

// End is after what time of our clock a lease that was not renewed is over.
func (p Promise) End() time.Duration { return stretch(float64(p.Duration) / (1 - skew)) }

// Bound is after what time of our clock nothing is written any more.
func (p Promise) Bound() time.Duration {
	return stretch(float64(p.Duration)/(1-skew) + float64(p.Grace))
}

func stretch(ns float64) time.Duration { return time.Duration(ns*(1+skew)) + 1 }

// Lease is what is known of the lease of a DPU.
type Lease struct {
	// Given: the DPU promises to stop.
	Given bool
	// Left is the time until the bound, for one that is given; 0 or less: over.
	Left time.Duration
	// Ended: the lease is over, if it was not renewed; the DPU may be at work
	// on what it promised.
	Ended bool
}

// JudgeLease says how a lease is that was renewed last at a time, by our clock.
func JudgeLease(p Promise, given bool, at, now time.Time) Lease {
	since := now.Sub(at)
	return Lease{Given: given, Left: p.Bound() - since, Ended: given && since >= p.End()}
}

// Over reports whether nothing is written through the DPU any more.
func (l Lease) Over() bool { return l.Given && l.Left <= 0 }

// Again is when to look at a lease again; 0 if nothing will come of it.
func (l Lease) Again(p Promise) time.Duration {
	switch {
	case !l.Given || l.Left <= 0:
		return 0
	case l.Ended:
		return l.Left
	}
	return l.Left - p.Bound() + p.End()
}
