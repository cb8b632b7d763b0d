package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
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
