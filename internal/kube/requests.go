package kube

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// RequestFor is the request of one object.
func RequestFor(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}
}

// Requests turns the items of a list into requests.
func Requests[T any, P pointer[T]](items []T) []reconcile.Request {
	out := make([]reconcile.Request, 0, len(items))
	for i := range items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(P(&items[i]))})
	}
	return out
}

// Resync reports whether a watch tells of an object again that has not changed, as it
// does every --sync-period: a predicate lets that pass.
func Resync(e event.UpdateEvent) bool {
	return e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion()
}

// AddLast adds requests that may wait for all others, as those of the first list and of
// a resync do.
func AddLast(q workqueue.TypedRateLimitingInterface[reconcile.Request], all ...reconcile.Request) {
	if p, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		p.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(handler.LowPriority)}, all...)
		return
	}
	for _, r := range all {
		q.Add(r)
	}
}

// Later is the priority of requests that go on with what was begun: they wait for those
// of the same controller that begin something, and go ahead of the first list and of a
// resync.
const Later = -10

// EnqueueLater enqueues what an object maps to with the priority Later.
func EnqueueLater[T client.Object](toRequests handler.TypedMapFunc[T, reconcile.Request]) handler.TypedEventHandler[T, reconcile.Request] {
	all := handler.TypedEnqueueRequestsFromMapFunc(toRequests)
	return handler.TypedFuncs[T, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[T], q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			all.Create(ctx, e, later(q))
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[T], q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			all.Update(ctx, e, later(q))
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[T], q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			all.Delete(ctx, e, later(q))
		},
	}
}

// later is a queue to which requests are added with the priority Later, unless they have
// one; any other queue than one with priorities is left as it is.
func later(q workqueue.TypedRateLimitingInterface[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	if p, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		return laterQueue{p}
	}
	return q
}

type laterQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
}

func (q laterQueue) Add(r reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(Later)}, r)
}

// RequestsOf turns what a cache lists into requests, for watches in which an
// event of one object concerns others. An error is logged: it can only be that
// an index is missing, and the map function of a watch returns none.
func RequestsOf(ctx context.Context, from client.Reader, list client.ObjectList, of ...client.ListOption) []reconcile.Request {
	var out []reconcile.Request
	err := from.List(ctx, list, append(of, client.UnsafeDisableDeepCopy)...)
	if err == nil {
		err = meta.EachListItem(list, func(item runtime.Object) error {
			o := item.(client.Object)
			out = append(out, RequestFor(o.GetNamespace(), o.GetName()))
			return nil
		})
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list what an event concerns", "list", fmt.Sprintf("%T", list))
	}
	return out
}
