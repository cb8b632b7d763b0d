package listener

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// Nodes hears hosts and DPUs by their Leases and their DPUStorageNodes, in the event
// handlers of the caches: a heartbeat is recorded as soon as a watch brings it, and
// whether a pass of a reconciler follows is for the observer to say. It also lets the
// observer notice silence.
type Nodes struct {
	// Host has an index of DPUStorageNodes by DPU.
	Host, DPU kube.Cluster
	// HostNamespace and DPUNamespace are where the Leases are.
	HostNamespace, DPUNamespace string
	Observer                    *nodehealth.Observer
	Clock                       clock.WithTicker

	// mu keeps what is read and what is recorded in one order: of two that read a
	// host, the one that read the older state must not record it last.
	mu sync.Mutex
}

// Start watches until ctx ends. It is a manager.Runnable of the leader
// alone.
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
		in        kube.Cluster
		namespace string
		hear      func(context.Context, string)
	}{{n.Host, n.HostNamespace, n.hear}, {n.DPU, n.DPUNamespace, n.hearDPU}} {
		for kind, told := range map[client.Object]toolscache.ResourceEventHandler{
			&moorv1alpha1.DPUStorageNode{}: handler(func(o *moorv1alpha1.DPUStorageNode) { w.hear(ctx, o.Name) }),
			&coordinationv1.Lease{}: handler(func(l *coordinationv1.Lease) {
				if node, ok := moorv1alpha1.LeaseOf(l.Name); ok && l.Namespace == w.namespace {
					w.hear(ctx, node)
				}
			}),
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

// handler tells of each event of an object, also of its end.
func handler[T client.Object](told func(T)) toolscache.ResourceEventHandler {
	tell := func(obj any) {
		if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if o, ok := obj.(T); ok {
			told(o)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, now any) { tell(now) }, DeleteFunc: tell}
}

// hearDPU records what the caches have of a DPU, and of the hosts that have it.
func (n *Nodes) hearDPU(ctx context.Context, dpu string) {
	n.mu.Lock()
	err := n.recordDPU(ctx, dpu)
	n.mu.Unlock()
	if err != nil {
		ctrl.LoggerFrom(ctx).WithName("listener").Error(err, "a heartbeat was not recorded", "dpu", dpu)
	}
	for _, host := range kube.RequestsOf(ctx, n.Host.Client, &moorv1alpha1.DPUStorageNodeList{}, client.MatchingFields{index.DPUStorageNodeByDPU: dpu}) {
		n.hear(ctx, host.Name)
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
	renewed, err := renewed(ctx, n.DPU.Client, n.DPUNamespace, dpu)
	if err != nil {
		return err
	}
	var sequence int64
	if node.Status.DPU != nil {
		sequence = node.Status.DPU.Sequence
	}
	n.Observer.HearDPU(dpu, sequence, renewed)
	return nil
}

func (n *Nodes) record(ctx context.Context, host string) error {
	node := &moorv1alpha1.DPUStorageNode{} // its fields may be set; what they point to is the cache's
	found, err := kube.Find(ctx, n.Host.Client, client.ObjectKey{Name: host}, node, client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	if !found {
		n.Observer.Forget(host)
		return nil
	}
	if err := nodehealth.FromDPU(ctx, n.DPU.Client, node, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	n.Observer.Observe(node)
	for _, l := range []struct {
		of        string
		in        nodehealth.Cluster
		from      kube.Cluster
		namespace string
	}{{host, nodehealth.HostCluster, n.Host, n.HostNamespace}, {node.Spec.DPUName, nodehealth.DPUCluster, n.DPU, n.DPUNamespace}} {
		if l.of == "" {
			continue
		}
		renewed, err := renewed(ctx, l.from.Client, l.namespace, l.of)
		if err != nil {
			return err
		}
		if !renewed.IsZero() {
			n.Observer.Lease(host, l.in, renewed)
		}
	}
	return nil
}

// renewed is when a host or a DPU says that it renewed its Lease; zero if it has none. A
// Lease that another holds is not its own.
func renewed(ctx context.Context, from client.Reader, namespace, node string) (time.Time, error) {
	lease := &coordinationv1.Lease{}
	found, err := kube.Find(ctx, from, client.ObjectKey{Namespace: namespace, Name: moorv1alpha1.LeaseName(node)}, lease, client.UnsafeDisableDeepCopy)
	if err != nil || !found || lease.Spec.RenewTime == nil || ptr.Deref(lease.Spec.HolderIdentity, "") != node {
		return time.Time{}, err
	}
	return lease.Spec.RenewTime.Time, nil
}
