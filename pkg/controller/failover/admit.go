package failover

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/nodehealth"
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

// admit begins the failover of a host, on record, if the budget allows it. The
// count comes from the API server itself, so that a restart forgets none.
func (f *Failover) admit(ctx context.Context, p *pass) error {
	f.admitting.Lock()
	defer f.admitting.Unlock()
	var list moorv1alpha1.DPUStorageNodeList
	if err := f.Host.Live.List(ctx, &list); err != nil {
		return fmt.Errorf("count the failovers of the last minute: %w", err)
	}
	zone, all, near := zoneOf(p.core), 0, 0
	for i := range list.Items {
		c := meta.FindStatusCondition(list.Items[i].Status.Conditions, moorv1alpha1.ConditionFailover)
		if c == nil || c.Status != metav1.ConditionTrue || f.Clock.Since(c.LastTransitionTime.Time) >= time.Minute {
			continue
		}
		all++
		other, err := f.coreNode(ctx, list.Items[i].Name)
		if err != nil {
			return err
		}
		if zoneOf(other) == zone {
			near++
		}
	}
	if p.refused = f.Budget.refuse(all, near, zone); p.refused != "" {
		return nil
	}
	p.underway = true
	if err := f.writeCondition(ctx, p, metav1.ConditionTrue, moorv1alpha1.ReasonFencing, p.evidence); err != nil {
		p.underway = false
		return err
	}
	f.Recorder.Event(p.node, corev1.EventTypeWarning, storagev1alpha1.EventFailoverDetected, fmt.Sprintf("%s: %s", p.state, p.evidence))
	for _, t := range p.affected() {
		f.Recorder.Event(t.volume, corev1.EventTypeWarning, storagev1alpha1.EventFailoverDetected, fmt.Sprintf("host %s is %s: %s", p.node.Name, p.state, p.evidence))
	}
	return nil
}

func zoneOf(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	return node.Labels[corev1.LabelTopologyZone]
}

// serves reports whether a host is one of those whose pods could be elsewhere: it
// has a DPU, and is neither drained nor being failed over.
func serves(n *moorv1alpha1.DPUStorageNode, core *corev1.Node) bool {
	return n.Spec.DPUName != "" && core != nil && !core.Spec.Unschedulable && !tainted(core) && !underway(n)
}

// fleet is what all hosts look like now. It observes each itself: a
// process that has just started may not have observed the others yet.
func (f *Failover) fleet(ctx context.Context) (Fleet, error) {
	var list moorv1alpha1.DPUStorageNodeList
	if err := f.Host.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return Fleet{}, fmt.Errorf("list all hosts: %w", err)
	}
	var out Fleet
	for i := range list.Items {
		n := list.Items[i] // a copy: the list is the cache's own
		core, err := f.coreNode(ctx, n.Name)
		if err != nil {
			return Fleet{}, err
		}
		if !serves(&n, core) {
			continue
		}
		out.Nodes++
		if err := nodehealth.FromDPU(ctx, f.DPU.Client, &n); err != nil {
			return Fleet{}, err
		}
		seen := f.Observer.Observe(&n)
		if seen.Host.Silent() || seen.HostSeen == nodehealth.SeenDead && seen.Host != nodehealth.Fresh {
			out.Dead++
		}
		if apiOf(core) == APINotReady && !seen.ZeroTrust && seen.DPU.Heard() && seen.HostSeen == nodehealth.SeenAlive {
			out.Contradicted++
		}
	}
	return out, nil
}
