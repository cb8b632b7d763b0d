package failover

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/writer"
)

// renewal is a state of a DPU's object that may be a renewal of its lease.
type renewal struct {
	uid      types.UID
	sequence int64
	promise  writer.Promise
}

// renewals remembers when this process saw each DPU's renewal first, by its own
// clock, for as long as the DPU has an object. What it forgets, by a restart for
// example, is seen anew, so that its lease is over later and not sooner. Safe for
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
func (r *renewals) note(n *moorv1alpha1.DPUStorageNode, now time.Time) (writer.Promise, time.Time, bool) {
	p, ok := writer.Promised(n.Status.DPU)
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

// forget drops what is known of a DPU that has no object any more.
func (r *renewals) forget(dpu string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, dpu)
}

// leases reads the leases of the DPUs, and remembers their renewals.
type leases struct {
	dpu   kube.Cluster
	clock clock.PassiveClock
	seen  renewals
}

// heard takes notice of a DPU's heartbeat that a watch has brought.
func (l *leases) heard(n *moorv1alpha1.DPUStorageNode) { l.seen.note(n, l.clock.Now()) }

// read reads the lease of a DPU, from the cache or from the API server itself,
// and says when to look at it again. A DPU that has no object promises nothing.
func (l *leases) read(ctx context.Context, from client.Reader, dpu string) (lease writer.Lease, again time.Duration, err error) {
	n := &moorv1alpha1.DPUStorageNode{}
	found, err := kube.Find(ctx, from, client.ObjectKey{Name: dpu}, n)
	if err != nil {
		return lease, 0, fmt.Errorf("read the lease of DPU %s: %w", dpu, err)
	}
	if !found {
		l.seen.forget(dpu)
		return lease, 0, nil
	}
	now := l.clock.Now()
	p, at, given := l.seen.note(n, now)
	lease = writer.JudgeLease(p, given, at, now)
	return lease, lease.Again(p), nil
}

// confirm is the lease of the holder, which is read again before it is a receipt, from
// the API server itself. The claim has to be in Fencing by then: a renewal that is accepted later
// finds a claim from which nothing is shown.
func (l *leases) confirm(ctx context.Context, p *pass, t *target) (writer.Lease, error) {
	lease := p.lease
	if p.strange(t) {
		var err error
		if lease, _, err = l.read(ctx, l.dpu.Client, t.holder()); err != nil {
			return lease, err
		}
	}
	if !t.inFencing() || !lease.Over() {
		return lease, nil
	}
	lease, _, err := l.read(ctx, l.dpu.Live, t.holder())
	return lease, err
}

// decide says what is done about the state. A DPU that is silent, and whose lease
// is over, has taken the volumes from its host by itself: there is nothing left to
// hold.
func (p *pass) decide() {
	p.action = actions[p.state]
	if p.state != DPUDead || !p.lease.Given {
		return
	}
	if !p.lease.Ended {
		p.evidence += "; it has promised to withdraw by itself, and the end of its lease is waited for"
		return
	}
	p.action = Evict
	p.evidence += "; its lease is over, so it withdraws by itself or is reset, and the host has lost its volumes"
}
