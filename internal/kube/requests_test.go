package kube

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestRequests(t *testing.T) {
	pods := []corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "one"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "two"}},
	}
	want := []reconcile.Request{RequestFor("a", "one"), RequestFor("b", "two")}
	if diff := cmp.Diff(want, Requests(pods)); diff != "" {
		t.Errorf("requests of a slice: %s", diff)
	}
	c := fake.NewClientBuilder().WithObjects(&pods[0], &pods[1]).Build()
	if diff := cmp.Diff(want, RequestsOf(t.Context(), c, &corev1.PodList{})); diff != "" {
		t.Errorf("requests of a list: %s", diff)
	}
	if diff := cmp.Diff(want[1:], RequestsOf(t.Context(), c, &corev1.PodList{}, client.InNamespace("b"))); diff != "" {
		t.Errorf("requests of one namespace: %s", diff)
	}
	if got := RequestsOf(t.Context(), c, &corev1.PodList{}, client.MatchingFields{"no.such.index": "x"}); len(got) != 0 {
		t.Errorf("requests by a missing index: %v", got)
	}
}

// TestEnqueueLater: what goes on waits for what begins, and goes ahead of a first list and
// of a resync.
func TestEnqueueLater(t *testing.T) {
	q := priorityqueue.New[reconcile.Request](t.Name())
	defer q.ShutDown()
	ctx, pod := t.Context(), func(name, version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
	}
	late := EnqueueLater(func(_ context.Context, p *corev1.Pod) []reconcile.Request {
		return []reconcile.Request{RequestFor("", p.Name)}
	})
	late.Create(ctx, event.TypedCreateEvent[*corev1.Pod]{Object: pod("listed", "1"), IsInInitialList: true}, q)
	late.Update(ctx, event.TypedUpdateEvent[*corev1.Pod]{ObjectOld: pod("again", "1"), ObjectNew: pod("again", "1")}, q)
	late.Create(ctx, event.TypedCreateEvent[*corev1.Pod]{Object: pod("made", "1")}, q)
	late.Update(ctx, event.TypedUpdateEvent[*corev1.Pod]{ObjectOld: pod("changed", "1"), ObjectNew: pod("changed", "2")}, q)
	late.Delete(ctx, event.TypedDeleteEvent[*corev1.Pod]{Object: pod("gone", "1")}, q)
	q.Add(RequestFor("", "begins"))
	got := map[string]int{}
	for range 6 {
		r, priority, _ := q.GetWithPriority()
		got[r.Name] = priority
	}
	want := map[string]int{"begins": 0, "made": Later, "changed": Later, "gone": Later, "listed": handler.LowPriority, "again": handler.LowPriority}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
