package failover

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// Budget bounds how many hosts may begin to fail over within a minute. A
// failover that has begun is never stopped by it.
type Budget struct {
	// PerMinute bounds all hosts; 0 or less: no failover begins.
	PerMinute int
	// PerZone bounds the hosts of one zone (topology.kubernetes.io/zone).
	PerZone int
}

// DefaultBudget lets ten hosts a minute fail over, five of one zone.
var DefaultBudget = Budget{PerMinute: 10, PerZone: 5}

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

// admission begins failovers within a budget, one at a time.
type admission struct {
	mu        sync.Mutex
	host      kube.Cluster
	fleet     *fleetReader
	clock     clock.PassiveClock
	recorder  record.EventRecorder
	budget    Budget
	condition condition
}

// admit begins the failover of a host, on record, if the budget allows it, and if the
// fleet does not look sick at that moment. The count comes from the API server itself,
// so that a restart forgets none.
func (a *admission) admit(ctx context.Context, p *pass) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list moorv1alpha1.DPUStorageNodeList
	if err := a.host.Live.List(ctx, &list); err != nil {
		return fmt.Errorf("count the failovers of the last minute: %w", err)
	}
	zone, all, near := zoneOf(p.core), 0, 0
	for i := range list.Items {
		c := meta.FindStatusCondition(list.Items[i].Status.Conditions, moorv1alpha1.ConditionFailover)
		if c == nil || c.Status != metav1.ConditionTrue || a.clock.Since(c.LastTransitionTime.Time) >= time.Minute {
			continue
		}
		all++
		other, err := coreNode(ctx, a.host.Client, list.Items[i].Name)
		if err != nil {
			return err
		}
		if zoneOf(other) == zone {
			near++
		}
	}
	if p.refused = a.budget.refuse(all, near, zone); p.refused != "" {
		return nil
	}
	fleet, err := a.fleet.now(ctx)
	if err != nil {
		return err
	}
	if p.judge(fleet); !p.takes() {
		return nil
	}
	p.underway = true
	if err := a.condition.write(ctx, p, metav1.ConditionTrue, moorv1alpha1.ReasonFencing, p.evidence); err != nil {
		p.underway = false
		return err
	}
	a.recorder.Event(p.node, corev1.EventTypeWarning, storagev1alpha1.EventFailoverDetected, fmt.Sprintf("%s: %s", p.state, p.evidence))
	for _, t := range p.affected() {
		a.recorder.Event(t.volume, corev1.EventTypeWarning, storagev1alpha1.EventFailoverDetected, fmt.Sprintf("host %s is %s: %s", p.node.Name, p.state, p.evidence))
	}
	return nil
}

func zoneOf(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	return node.Labels[corev1.LabelTopologyZone]
}
