package listener

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// Nodes hears hosts and DPUs by their Leases and their DPUStorageNodes, in the event
// handlers of the caches: a heartbeat is recorded as soon as a watch brings it, and
// whether a pass of a reconciler follows is for the observer to say. It also lets the
// observer notice silence.
//
// Most of what comes is Leases, each of which says nothing but that it was renewed: one
// is heard as it comes, and no cache is asked.
type Nodes struct {
	Host, DPU kube.Cluster
	// HostNamespace and DPUNamespace are where the Leases are.
	HostNamespace, DPUNamespace string
	Observer                    *nodehealth.Observer
	Clock                       clock.WithTicker

	// mu keeps what is read and what is recorded in one order: of two that read a
	// host, the one that read the older state must not record it last.
	mu sync.Mutex
	// renewed are the Leases as they came last, by the cluster and by who renews them.
	renewed map[nodehealth.Cluster]map[string]time.Time
	// dpuOf is the DPU of each host that has a DPUStorageNode, "" where it names none;
	// hostsOf the same by DPU.
	dpuOf   map[string]string
	hostsOf map[string]sets.Set[string]
}

// NeedLeaderElection is false, for the reason that it is for Leases. Without the lease nothing
// follows from what is heard: a replica that waits has no reconcilers.
func (*Nodes) NeedLeaderElection() bool { return false }

// Start watches until ctx ends.
func (n *Nodes) Start(ctx context.Context) error {
	stop, err := n.listen(ctx)
	if err != nil {
		return err
	}
	defer stop()
	ticker := n.Clock.NewTicker(n.Observer.ReviewPeriod())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			n.Observer.Review()
		}
	}
}

// listen has each change of a DPUStorageNode, and of a Lease, heard until stop is called.
// It waits for all caches first: each event is heard with what the others have.
func (n *Nodes) listen(ctx context.Context) (stop func(), err error) {
	n.mu.Lock()
	n.renewed = map[nodehealth.Cluster]map[string]time.Time{nodehealth.HostCluster: {}, nodehealth.DPUCluster: {}}
	n.dpuOf, n.hostsOf = map[string]string{}, map[string]sets.Set[string]{}
	n.mu.Unlock()
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	type watch struct {
		informer cache.Informer
		handler  toolscache.ResourceEventHandler
	}
	var watches []watch
	for _, w := range []struct {
		in    kube.Cluster
		nodes func(*moorv1alpha1.DPUStorageNode)
		lease leaseHandler
	}{
		{n.Host, func(o *moorv1alpha1.DPUStorageNode) { n.hear(ctx, o.Name) }, n.leases(nodehealth.HostCluster, n.HostNamespace)},
		{n.DPU, func(o *moorv1alpha1.DPUStorageNode) { n.hearDPU(ctx, o.Name) }, n.leases(nodehealth.DPUCluster, n.DPUNamespace)},
	} {
		for kind, told := range map[client.Object]toolscache.ResourceEventHandler{
			&moorv1alpha1.DPUStorageNode{}: handler(func(o *moorv1alpha1.DPUStorageNode, _ bool) { w.nodes(o) }),
			&coordinationv1.Lease{}:        handler(w.lease),
		} {
			informer, err := w.in.Cache.GetInformer(ctx, kind)
			if err != nil {
				return nil, fmt.Errorf("watch %T: %w", kind, err)
			}
			watches = append(watches, watch{informer, told})
		}
	}
	for _, w := range watches {
		registration, err := w.informer.AddEventHandler(w.handler)
		if err != nil {
			stop()
			return nil, fmt.Errorf("watch heartbeats: %w", err)
		}
		stops = append(stops, func() { _ = w.informer.RemoveEventHandler(registration) })
	}
	return stop, nil
}

type leaseHandler = func(l *coordinationv1.Lease, gone bool)

// handler tells of each event of an object, and whether it is its end.
func handler[T client.Object](told func(o T, gone bool)) toolscache.ResourceEventHandler {
	tell := func(obj any, gone bool) {
		if o, ok := obj.(T); ok {
			told(o, gone)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { tell(o, false) }, UpdateFunc: func(_, now any) { tell(now, false) },
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			tell(o, true)
		},
	}
}

// leases hears the Leases of hosts or DPUs, in the namespace where they are.
func (n *Nodes) leases(in nodehealth.Cluster, namespace string) leaseHandler {
	return func(l *coordinationv1.Lease, gone bool) {
		if node, ok := moorv1alpha1.LeaseOf(l.Name); ok && l.Namespace == namespace {
			n.hearLease(in, node, l, gone)
		}
	}
}

// hearLease records that a host or a DPU renewed its Lease, also for the hosts that have
// that DPU. One that another holds is not its own, and one that is gone is no sign of life.
func (n *Nodes) hearLease(in nodehealth.Cluster, node string, l *coordinationv1.Lease, gone bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if gone || l.Spec.RenewTime == nil || ptr.Deref(l.Spec.HolderIdentity, "") != node {
		delete(n.renewed[in], node)
		return
	}
	at := l.Spec.RenewTime.Time
	n.renewed[in][node] = at
	if in == nodehealth.DPUCluster {
		n.Observer.HearDPU(node, 0, at)
		for host := range n.hostsOf[node] {
			n.Observer.Lease(host, in, at)
		}
		return
	}
	if _, known := n.dpuOf[node]; known {
		n.Observer.Lease(node, in, at)
	}
}

// hearDPU records what the caches have of a DPU, and of the hosts that have it.
func (n *Nodes) hearDPU(ctx context.Context, dpu string) {
	n.mu.Lock()
	err := n.recordDPU(ctx, dpu)
	hosts := n.hostsOf[dpu].UnsortedList()
	n.mu.Unlock()
	if err != nil {
		ctrl.LoggerFrom(ctx).WithName("listener").Error(err, "a heartbeat was not recorded", "dpu", dpu)
	}
	for _, host := range hosts {
		n.hear(ctx, host)
	}
}

// hear records what the caches have of a host. It copies nothing.
func (n *Nodes) hear(ctx context.Context, host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.record(ctx, host); err != nil {
		ctrl.LoggerFrom(ctx).WithName("listener").Error(err, "a heartbeat was not recorded", "host", host)
	}
}

func (n *Nodes) recordDPU(ctx context.Context, dpu string) error {
	node := &moorv1alpha1.DPUStorageNode{}
	if _, err := kube.Find(ctx, n.DPU.Client, client.ObjectKey{Name: dpu}, node, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	if node.Status.DPU != nil {
		n.Observer.HearDPU(dpu, node.Status.DPU.Sequence, time.Time{})
	}
	return nil
}

func (n *Nodes) record(ctx context.Context, host string) error {
	node := &moorv1alpha1.DPUStorageNode{} // its fields may be set; what they point to is the cache's
	found, err := kube.Find(ctx, n.Host.Client, client.ObjectKey{Name: host}, node, client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	n.assign(host, node.Spec.DPUName, found)
	if !found {
		n.Observer.Forget(host)
		return nil
	}
	if err := nodehealth.FromDPU(ctx, n.DPU.Client, node, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	n.Observer.Observe(node)
	for in, of := range map[nodehealth.Cluster]string{nodehealth.HostCluster: host, nodehealth.DPUCluster: node.Spec.DPUName} {
		if at, renewed := n.renewed[in][of]; renewed {
			n.Observer.Lease(host, in, at)
		}
	}
	return nil
}

// assign notes which DPU a host has, or that it has no DPUStorageNode.
func (n *Nodes) assign(host, dpu string, found bool) {
	if was, known := n.dpuOf[host]; known && (was != dpu || !found) {
		if n.hostsOf[was].Delete(host); n.hostsOf[was].Len() == 0 {
			delete(n.hostsOf, was)
		}
	}
	if !found {
		delete(n.dpuOf, host)
		return
	}
	n.dpuOf[host] = dpu
	if n.hostsOf[dpu] == nil {
		n.hostsOf[dpu] = sets.New[string]()
	}
	n.hostsOf[dpu].Insert(host)
}
