package nodehealth

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// change is told of each observation of a DPUStorageNode that has become another
// one. It must neither block nor call the observer.
type change func(name string, before, after Observation)

// Source wakes a reconciler of DPUStorageNodes: when the observation of one has become
// another one, in what matters to it. A heartbeat that comes when it is due changes no
// observation.
func (o *Observer) Source(matters func(before, after Observation) bool) source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		o.subscribe(func(name string, before, after Observation) {
			if matters(before, after) {
				queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
			}
		})
		return nil
	})
}

func (o *Observer) subscribe(c change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.subscribers = append(o.subscribers, c)
}

// Review looks at all nodes, since silence changes what is known of them without
// anything that is heard. It has to be called every ReviewPeriod.
func (o *Observer) Review() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.clock.Now()
	for name, e := range o.nodes {
		o.tell(name, e, o.observation(e, now))
	}
}

// ReviewPeriod is how long after it has come silence may be noticed.
func (o *Observer) ReviewPeriod() time.Duration { return o.silence / 30 }

// tell tells the subscribers if an observation is not the one that they know. A kubelet
// alone is no DPUStorageNode.
func (o *Observer) tell(name string, e *entry, is Observation) {
	if was := e.told; e.observed && was != is {
		e.told = is
		for _, c := range o.subscribers {
			c(name, was, is)
		}
	}
}
