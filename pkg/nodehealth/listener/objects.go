package listener

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// Objects hears hosts and DPUs by their DPUStorageNodes, in the event handlers of the
// caches: a heartbeat is recorded as soon as a watch brings it, and whether a pass of a
// reconciler follows is for the observer to say. It also lets the observer notice
// silence.
type Objects struct {
	// Host has an index of DPUStorageNodes by DPU.
	Host, DPU kube.Cluster
	Observer  *nodehealth.Observer
	Clock     clock.WithTicker

	// mu keeps what is read and what is recorded in one order: of two that read a
	// host, the one that read the older state must not record it last.
	mu sync.Mutex
}

// Start watches DPUStorageNodes until ctx ends. It is a manager.Runnable of the leader
// alone.
func (o *Objects) Start(ctx context.Context) error {
	stop, err := o.listen(ctx)
	if err != nil {
		return err
	}
	defer stop()
	ticker := o.Clock.NewTicker(o.Observer.ReviewPeriod())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			o.Observer.Review()
		}
	}
}

// listen has each change of a DPUStorageNode heard until stop is called. It waits for
// both caches first: each event is heard with what the other cache has.
func (o *Objects) listen(ctx context.Context) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	var informers [2]cache.Informer
	for i, c := range []kube.Cluster{o.Host, o.DPU} {
		if informers[i], err = c.Cache.GetInformer(ctx, &moorv1alpha1.DPUStorageNode{}); err != nil {
			return nil, fmt.Errorf("watch DPUStorageNodes: %w", err)
		}
	}
	for i, hear := range []func(context.Context, string){o.hear, o.hearDPU} {
		registration, err := informers[i].AddEventHandler(handler(func(n *moorv1alpha1.DPUStorageNode) { hear(ctx, n.Name) }))
		if err != nil {
			stop()
			return nil, fmt.Errorf("watch DPUStorageNodes: %w", err)
		}
		stops = append(stops, func() { _ = informers[i].RemoveEventHandler(registration) })
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

// hearDPU records what the caches have of the hosts of a DPU.
func (o *Objects) hearDPU(ctx context.Context, dpu string) {
	for _, host := range kube.RequestsOf(ctx, o.Host.Client, &moorv1alpha1.DPUStorageNodeList{}, client.MatchingFields{index.DPUStorageNodeByDPU: dpu}) {
		o.hear(ctx, host.Name)
	}
}

// hear records what the caches have of a host. It copies nothing.
func (o *Objects) hear(ctx context.Context, host string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	node := &moorv1alpha1.DPUStorageNode{} // its fields may be set; what they point to is the cache's
	err := o.Host.Client.Get(ctx, client.ObjectKey{Name: host}, node, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		o.Observer.Forget(host)
		return
	case err == nil:
		err = nodehealth.FromDPU(ctx, o.DPU.Client, node, client.UnsafeDisableDeepCopy)
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).WithName("listener").Error(err, "a heartbeat was not recorded", "host", host)
		return
	}
	o.Observer.Observe(node)
}
