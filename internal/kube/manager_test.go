package kube

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// TestEventsGoFirst: in the queues of our managers, an event goes ahead of the first list
// and of a resync, by whichever handler it comes, and so does a pass that was asked for.
func TestEventsGoFirst(t *testing.T) {
	node := func(name, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
	}
	toItself := func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
	}
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	for name, h := range map[string]handler.EventHandler{
		"object": &handler.EnqueueRequestForObject{},
		"map":    handler.EnqueueRequestsFromMapFunc(toItself),
		"funcs": handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { q.Add(RequestFor("", e.Object.GetName())) },
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
				q.Add(RequestFor("", e.ObjectNew.GetName()))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			flags := Flags{MetricsBindAddress: "0", HealthProbeBindAddress: "0", Concurrency: 1, SyncPeriod: time.Hour}
			mgr, err := NewManager(&rest.Config{Host: "127.0.0.1:1"}, clientgoscheme.Scheme, flags, "", cache.Options{})
			if err != nil {
				t.Fatal(err)
			}
			events := source.Func(func(ctx context.Context, q queue) error {
				h.Create(ctx, event.CreateEvent{Object: node("listed", "1"), IsInInitialList: true}, q)
				h.Update(ctx, event.UpdateEvent{ObjectOld: node("resynced", "1"), ObjectNew: node("resynced", "1")}, q)
				AddLast(q, RequestFor("", "may wait"))
				h.Update(ctx, event.UpdateEvent{ObjectOld: node("changed", "1"), ObjectNew: node("changed", "2")}, q)
				h.Create(ctx, event.CreateEvent{Object: node("made", "1")}, q)
				return nil
			})
			passes := make(chan string, 6)
			r := reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
				passes <- req.Name
				return reconcile.Result{}, nil
			})
			if err := ctrl.NewControllerManagedBy(mgr).Named("first-" + name).WatchesRawSource(events).
				WithOptions(controller.Options{SkipNameValidation: ptr.To(true)}).Complete(Retrying(r)); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- mgr.Start(ctx) }()
			for i, want := range []string{"changed", "made", "listed", "resynced", "may wait"} {
				if got := <-passes; got != want {
					t.Errorf("pass %d is over %s, want %s", i, got, want)
				}
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
