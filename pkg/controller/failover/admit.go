package failover

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// Budget bounds how many hosts may begin to fail over within a time. A failover that has
// begun is never stopped by it.
type Budget struct {
	// PerMinute bounds all hosts; 0 or less: no failover begins.
	PerMinute int
	// PerZone bounds the hosts of one zone (topology.kubernetes.io/zone).
	PerZone int
	// Window is within what time no more hosts may begin than may look dead at once: what
	// takes living hosts for dead one after the other, such as a rollout that cuts their
	// links to their DPUs, is no failure of hosts. A host of which all witnesses agree, and
	// one whose failover was requested, begin nevertheless, and count. 0: no bound.
	Window time.Duration
}

// DefaultBudget lets ten hosts a minute fail over, five of one zone, and not more than
// two or 30 % within ten minutes.
var DefaultBudget = Budget{PerMinute: 10, PerZone: 5, Window: 10 * time.Minute}

// candidate is a host that is to begin to fail over.
type candidate struct {
	host, zone string
	// sure: all its witnesses agree that it is dead, or a person wants it.
	sure bool
}

// candidate is the host as one that is to fail over.
func (p *pass) candidate() candidate {
	return candidate{host: p.node.Name, zone: zoneOf(p.core), sure: p.unanimous || p.requested()}
}

// refuse says why one more failover may not begin; "" if it may.
func (b Budget) refuse(all, zone int, name string) string {
	switch {
	case all >= b.PerMinute:
		return fmt.Sprintf("the budget of %d failovers a minute is spent", b.PerMinute)
	case zone >= b.PerZone:
		return fmt.Sprintf("the budget of %d failovers a minute in zone %q is spent", b.PerZone, name)
	}
	return ""
}

// exclude says why a host may not begin to fail over, by what the fleet looks like and
// those that were admitted; "" if it may. A host counts once, and does not stand in its
// own way.
func (b Budget) exclude(c candidate, fleet overview, admitted failovers, now time.Time) string {
	all := distinct(time.Minute, now, fleet.begun, admitted.without(fleet.ended))
	delete(all, c.host)
	near := 0
	for _, zone := range all {
		if zone == c.zone {
			near++
		}
	}
	if refused := b.refuse(len(all), near, c.zone); refused != "" || c.sure {
		return refused
	}
	recent := distinct(b.Window, now, fleet.begun, admitted)
	recent[c.host] = c.zone
	if b.Window <= 0 || !tooMany(len(recent), fleet.hosts) {
		return ""
	}
	return fmt.Sprintf("with this one %s would have failed over within %s, which points to what sees them dead: it begins once heartbeat, kubelet and DPU "+
		"agree that this host is dead, or a person requests it (spec.failover)", share(len(recent), fleet.hosts), b.Window)
}

// distinct are the hosts of some failovers within a time, with their zones.
func distinct(window time.Duration, now time.Time, known ...failovers) map[string]string {
	out := map[string]string{}
	for _, some := range known {
		for host, f := range some {
			if f.within(window, now) {
				out[host] = f.Zone
			}
		}
	}
	return out
}

// admission begins failovers within a budget.
type admission struct {
	clock     clock.PassiveClock
	recorder  record.EventRecorder
	budget    Budget
	fleet     *fleetReader
	admitted  *admitted
	condition condition
}

// refuse says by what is known already why the failover of a host may not begin: a
// budget that is spent by that is spent, and a host that waits its turn asks the API
// server for nothing. Where several hosts name its DPU none begins, also if a person wants it:
// what that DPU sees may be another host, and what it shows another's.
func (a *admission) refuse(ctx context.Context, p *pass) (err error) {
	if !p.begins() {
		return nil
	}
	if p.refused, err = nodehealth.Shared(ctx, a.fleet.host.Client, p.dpu()); err != nil || p.refused != "" {
		return err
	}
	fleet, err := a.fleet.recent(ctx)
	if err != nil {
		return err
	}
	p.refused = a.budget.exclude(p.candidate(), fleet, a.admitted.known(), a.clock.Now())
	return nil
}

// admit begins the failover of a host, on record, if the budget allows it, and if the
// fleet does not look sick at that moment.
func (a *admission) admit(ctx context.Context, p *pass) error {
	fleet, err := a.fleet.now(ctx)
	if err != nil {
		return err
	}
	if p.judge(fleet.Fleet); !p.takes() {
		return nil
	}
	if p.refused, err = a.admitted.enter(ctx, p.candidate(), a.budget, fleet); err != nil || p.refused != "" {
		return err
	}
	p.underway = true
	if err := a.condition.write(ctx, p, metav1.ConditionTrue, moorv1alpha1.ReasonFencing, p.finding()); err != nil {
		p.underway = false
		return err
	}
	a.recorder.Event(p.node, corev1.EventTypeWarning, storagev1alpha1.EventFailoverDetected, fmt.Sprintf("%s: %s", p.state, p.evidence))
	for _, t := range p.affected() {
		if t.single { // that its fence begins says it too
			continue
		}
		a.recorder.Event(t.volume, corev1.EventTypeWarning, storagev1alpha1.EventFailoverDetected, fmt.Sprintf("host %s is %s: %s", p.node.Name, p.state, p.evidence))
	}
	return nil
}

// AdmittedName is the Lease that lists whose failover was admitted.
const AdmittedName = "snap-host-controller-failovers"

// admitted are the hosts whose failover was admitted within the last minute, and within
// the window of the budget. They are
// listed in a Lease, which is written by compare-and-swap before a failover begins: so
// of two leaders that know the same list one is turned back, and a leader that
// crashes in between leaves a host that counts and may begin without counting twice.
// If the Lease is deleted, the failovers that the cache shows still count, and those
// that this process knows. One entry takes some 80 bytes and an annotation holds 256
// KiB; more admissions in that time fail, and their hosts are held. Safe for concurrent
// use.
type admitted struct {
	host      kube.Cluster
	namespace string
	clock     clock.PassiveClock

	mu sync.Mutex
	// lease is as this process read it or wrote it last, nil if it does not know;
	// list is what it knows to be, or to have been, in it.
	lease *coordinationv1.Lease
	list  failovers
}

// known are those that this process knows of.
func (a *admitted) known() failovers {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.list)
}

// enter enters a host, unless the budget refuses it beside all that are known.
func (a *admitted) enter(ctx context.Context, c candidate, budget Budget, fleet overview) (refused string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	if err := a.read(ctx, now); err != nil {
		return "", err
	}
	if refused := budget.exclude(c, fleet, a.list, now); refused != "" {
		return refused, nil
	}
	return "", a.write(ctx, c.host, failoverAt{Zone: c.zone, At: now}, max(time.Minute, budget.Window))
}

// read reads the Lease from the API server itself, if what is in it is not known. What
// is stamped later than now, by a clock that is wrong, counts from now.
func (a *admitted) read(ctx context.Context, now time.Time) error {
	if a.lease != nil {
		return nil
	}
	key, lease, list := client.ObjectKey{Namespace: a.namespace, Name: AdmittedName}, &coordinationv1.Lease{}, failovers{}
	if _, err := kube.Find(ctx, a.host.Live, key, lease); err != nil {
		return fmt.Errorf("count the failovers of late: %w", err)
	}
	if text := lease.Annotations[storagev1alpha1.AnnotationFailovers]; text != "" {
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return fmt.Errorf("count the failovers of late: annotation %s of Lease %s, which may be deleted: %w", storagev1alpha1.AnnotationFailovers, key, err)
		}
	}
	for host, f := range list {
		if f.At.After(now) {
			list[host] = failoverAt{Zone: f.Zone, At: now}
		}
	}
	for host, f := range a.list {
		if _, ok := list[host]; !ok {
			list[host] = f
		}
	}
	lease.Namespace, lease.Name = key.Namespace, key.Name
	a.lease, a.list = lease, list
	return nil
}

// write writes the list with one more host, if the Lease is still as it is known. What is
// older than kept is left out.
func (a *admitted) write(ctx context.Context, host string, f failoverAt, kept time.Duration) error {
	list, lease := failovers{}, a.lease.DeepCopy()
	maps.Copy(list, a.list)
	maps.DeleteFunc(list, func(_ string, other failoverAt) bool { return !other.within(kept, f.At) })
	list[host] = f
	text, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("encode the failovers of late: %w", err)
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, storagev1alpha1.AnnotationFailovers, string(text))
	if lease.ResourceVersion == "" {
		err = a.host.Client.Create(ctx, lease)
	} else {
		err = a.host.Client.Update(ctx, lease)
	}
	if err != nil {
		a.lease = nil
		return fmt.Errorf("record the failover of host %s in Lease %s/%s: %w", host, a.namespace, AdmittedName, err)
	}
	a.lease, a.list = lease, list
	return nil
}
