package failover

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// skew is how much the clocks of two machines may differ in speed, as a part:
// quartz is specified within 0.0001, and NTP slews by at most 0.0005.
const skew = 0.001

// promise is what a DPU has promised: duration and grace are those of its lease.
type promise struct{ duration, grace time.Duration }

// promised returns what a DPU promises with its last beat. A lease that is not of
// that beat was left by another program, which promised and is gone.
func promised(d *moorv1alpha1.DPUState) (promise, bool) {
	if d == nil || d.Lease == nil || d.Sequence <= 0 || d.Lease.Sequence != d.Sequence {
		return promise{}, false
	}
	p := promise{time.Duration(d.Lease.DurationMillis) * time.Millisecond, time.Duration(d.Lease.GraceMillis) * time.Millisecond}
	return p, p.duration > 0 && p.grace > 0
}

// end is after what time of our clock a lease that was not renewed is over.
func (p promise) end() time.Duration { return stretch(float64(p.duration) / (1 - skew)) }

// bound is after what time of our clock nothing is written any more.
func (p promise) bound() time.Duration {
	return stretch(float64(p.duration)/(1-skew) + float64(p.grace))
}

func stretch(real float64) time.Duration { return time.Duration(real*(1+skew)) + 1 }

// renewal is a state of a DPU's object that may be a renewal of its lease.
type renewal struct {
	uid      types.UID
	sequence int64
	promise  promise
}

// renewals remembers when this process saw each DPU's renewal first, by its own
// clock. What it forgets, by a restart for example, is seen anew. Safe for
// concurrent use.
type renewals struct {
	mu   sync.Mutex
	last map[string]seenRenewal
}

type seenRenewal struct {
	renewal
	at time.Time
}

// note takes notice of a DPU's object, and says what it promises, and since when
// nothing of that has changed.
func (r *renewals) note(n *moorv1alpha1.DPUStorageNode, now time.Time) (promise, time.Time, bool) {
	p, ok := promised(n.Status.DPU)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[string]seenRenewal{}
	}
	is := renewal{uid: n.UID, promise: p}
	if n.Status.DPU != nil {
		is.sequence = n.Status.DPU.Sequence
	}
	if was, known := r.last[n.Name]; !known || was.renewal != is {
		r.last[n.Name] = seenRenewal{is, now}
	}
	return p, r.last[n.Name].at, ok
}

// leaseOf is what is known of the lease of a DPU.
type leaseOf struct {
	// given: the DPU promises to stop.
	given bool
	// left is the time until the bound, for one that is given; 0 or less: over.
	left time.Duration
	// ended: the lease is over, if it was not renewed; the DPU may be at work
	// on what it promised.
	ended bool
}

// judgeLease says how a lease is that was renewed last at a time.
func judgeLease(p promise, given bool, at, now time.Time) leaseOf {
	since := now.Sub(at)
	return leaseOf{given: given, left: p.bound() - since, ended: given && since >= p.end()}
}

// over reports whether nothing is written through the DPU any more.
func (l leaseOf) over() bool { return l.given && l.left <= 0 }

// again is when to look at a lease again; 0 if nothing will come of it.
func (l leaseOf) again(p promise) time.Duration {
	switch {
	case !l.given || l.left <= 0:
		return 0
	case l.ended:
		return l.left
	}
	return l.left - p.bound() + p.end()
}

// readLease reads the lease of a DPU, from the cache or from the API server itself,
// and says when to look at it again. A DPU that has no object promises nothing.
func (f *Failover) readLease(ctx context.Context, from client.Reader, dpu string) (l leaseOf, again time.Duration, err error) {
	n := &moorv1alpha1.DPUStorageNode{}
	found, err := kube.Find(ctx, from, client.ObjectKey{Name: dpu}, n)
	if err != nil {
		return l, 0, fmt.Errorf("read the lease of DPU %s: %w", dpu, err)
	}
	if !found {
		return l, 0, nil
	}
	now := f.Clock.Now()
	p, at, given := f.renewals.note(n, now)
	l = judgeLease(p, given, at, now)
	return l, l.again(p), nil
}

// confirmLease reads the lease again before it is a receipt, from the API server
// itself. The claim has to be in Fencing by then: a renewal that is accepted later
// finds a claim from which nothing is shown.
func (f *Failover) confirmLease(ctx context.Context, s *scene, t *target) (leaseOf, error) {
	if !t.inFencing(s.dpu()) || !s.lease.over() {
		return s.lease, nil
	}
	l, _, err := f.readLease(ctx, f.DPULive, s.dpu())
	return l, err
}
