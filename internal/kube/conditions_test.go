package kube

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSummarize(t *testing.T) {
	type cond struct{ status, reason, message string }
	yes := cond{"True", "Success", ""}
	for _, tc := range []struct {
		name    string
		a, b    cond // the zero value: missing
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		{"all true", yes, yes, "True", "Success", ""},
		{"missing", yes, cond{}, "False", "Pending", "not ready: B"},
		{"both missing", cond{}, cond{}, "False", "Pending", "not ready: A; B"},
		{"unknown", yes, cond{"Unknown", "Pending", ""}, "False", "Pending", "not ready: B"},
		{"pending with words", cond{"False", "Pending", "wait"}, yes, "False", "Pending", "not ready: A: wait"},
		{"failure over pending", cond{"False", "Pending", "p"}, cond{"False", "Failure", "f"}, "False", "Failure", "not ready: A: p; B: f"},
		{"deletion over failure", cond{"False", "AwaitingDeletion", "d"}, cond{"False", "Failure", "f"}, "False", "AwaitingDeletion", "not ready: A: d; B: f"},
		{"deletion over failure, the other way", cond{"False", "Failure", "f"}, cond{"False", "AwaitingDeletion", "d"}, "False", "AwaitingDeletion", "not ready: A: f; B: d"},
		{"error has no rank", cond{"False", "Error", "e"}, yes, "False", "Pending", "not ready: A: e"},
		{"true with a grave reason", cond{"True", "Failure", ""}, cond{"False", "Pending", ""}, "False", "Pending", "not ready: B"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var list []metav1.Condition
			c := Conditions{List: &list, Generation: 3}
			for kind, v := range map[string]cond{"A": tc.a, "B": tc.b} {
				if v != (cond{}) {
					c.set(kind, metav1.ConditionStatus(v.status), v.reason, v.message)
				}
			}
			c.Summarize("Ready", "A", "B")
			got := meta.FindStatusCondition(list, "Ready")
			if got.Status != tc.status || got.Reason != tc.reason || got.Message != tc.message || got.ObservedGeneration != 3 {
				t.Errorf("got %s/%s %q of generation %d; want %s/%s %q", got.Status, got.Reason, got.Message, got.ObservedGeneration, tc.status, tc.reason, tc.message)
			}
		})
	}
}

// TestConditionTimes: a condition that is said again keeps its time, so that
// saying it is no change.
func TestConditionTimes(t *testing.T) {
	old := metav1.NewTime(time.Unix(1e9, 0))
	list := []metav1.Condition{{Type: "A", Status: metav1.ConditionTrue, Reason: "Success", ObservedGeneration: 1, LastTransitionTime: old}}
	c := Conditions{List: &list, Generation: 1}
	c.True("A")
	c.Init("A", "B")
	if list[0].LastTransitionTime != old || list[0].Status != metav1.ConditionTrue {
		t.Errorf("got %+v", list[0])
	}
	if len(list) != 2 || list[1].Status != metav1.ConditionUnknown || list[1].Reason != "Pending" {
		t.Errorf("got %+v, want B added as unknown", list)
	}
	c.False("A", "Failure", "words")
	if list[0].LastTransitionTime == old || list[0].Message != "words" {
		t.Errorf("got %+v", list[0])
	}
}
