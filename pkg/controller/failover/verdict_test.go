package failover

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestVerdictOnNode: what a Node says of the death of its host, and when that changes.
func TestVerdictOnNode(t *testing.T) {
	node := func(conditions ...corev1.NodeCondition) *corev1.Node {
		n := kubetest.Node("a", nil)
		n.Status.Conditions = append(n.Status.Conditions, conditions...)
		return n
	}
	says := func(s corev1.ConditionStatus) *corev1.Node {
		return node(corev1.NodeCondition{Type: moorv1alpha1.NodeConditionHostDead, Status: s})
	}
	for name, tc := range map[string]struct {
		p       pass
		status  corev1.ConditionStatus
		changes bool
	}{
		"it fails over, and its Node says nothing":    {pass{core: node(), underway: true, action: Fence}, corev1.ConditionTrue, true},
		"it fails over, and its Node said it is well": {pass{core: says(corev1.ConditionFalse), underway: true, action: Fence}, corev1.ConditionTrue, true},
		"it fails over, and its Node says so":         {pass{core: says(corev1.ConditionTrue), underway: true, action: Fence}, corev1.ConditionTrue, false},
		"it looks dead, and does not fail over":       {pass{core: node(), action: Fence}, corev1.ConditionFalse, false},
		"it lives, and its pods are evicted":          {pass{core: node(), underway: true, action: Evict}, "", false},
		"it failed over, and is in doubt now":         {pass{core: says(corev1.ConditionTrue), underway: true, action: Evict}, "", false},
		"it is back":                                  {pass{core: says(corev1.ConditionTrue), underway: true, action: Restore}, corev1.ConditionFalse, true},
		"it is back in service":                       {pass{core: says(corev1.ConditionTrue), action: Restore}, corev1.ConditionFalse, true},
		"it is well, and its Node says so":            {pass{core: says(corev1.ConditionFalse), action: Restore}, corev1.ConditionFalse, false},
		"it is well, and its Node says nothing":       {pass{core: node(), action: Restore}, corev1.ConditionFalse, false},
		"it has no Node":                              {pass{underway: true, action: Fence}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			status, changes := tc.p.verdictOnNode()
			if changes != tc.changes || status != tc.status {
				t.Errorf("%q, %v; want %q, %v", status, changes, tc.status, tc.changes)
			}
		})
	}
}

// TestNodeSaysThatItsHostIsDead: from the beginning of the failover until it is seen alive,
// beside what the kubelet says, and it is written once.
func TestNodeSaysThatItsHostIsDead(t *testing.T) {
	s := newFixture(t)
	want := func(when string, status corev1.ConditionStatus, evidence bool) {
		t.Helper()
		n, _ := kubetest.Read(s.Host, kubetest.Node("a", nil))
		var have *corev1.NodeCondition
		for i := range n.Status.Conditions {
			if c := &n.Status.Conditions[i]; c.Type == moorv1alpha1.NodeConditionHostDead {
				have = c
			}
		}
		switch {
		case have == nil && status == "":
		case have == nil || have.Status != status || (have.Message != "") != evidence || have.LastTransitionTime.IsZero():
			t.Fatalf("%s: %+v, want %q", when, have, status)
		}
		if ready(n) == nil {
			t.Fatalf("%s: what the kubelet says is gone: %+v", when, n.Status.Conditions)
		}
	}
	s.mustPass()
	want("a host that is well", "", false)
	s.notReady("a")
	s.seenDead("a")
	s.live(30, "dpu-a", "b", "dpu-b")
	s.mustPass()
	want("its failover has begun", corev1.ConditionTrue, true)
	writes := s.Writes()
	s.mustPass()
	if n := s.Writes(); n != writes {
		t.Errorf("it was written again: %d writes, before %d", n, writes)
	}
	s.retire()
	s.mustPass()
	want("its volume is free", corev1.ConditionTrue, true)

	s.back()
	s.mustPass()
	want("it is back", corev1.ConditionFalse, true)
}

// TestVerdictOnNodeIsTakenBack: whichever write is lost, and though snap-host-controller starts
// again then, a Node whose host is back does not say for ever that it is dead.
func TestVerdictOnNodeIsTakenBack(t *testing.T) {
	for lost := range 8 {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, late %v", lost, late), func(t *testing.T) {
				s := newFixture(t)
				s.notReady("a")
				s.seenDead("a")
				s.live(30, "dpu-a", "b", "dpu-b")
				s.mustPass()
				s.retire()
				s.mustPass()
				s.back()
				s.LoseWrite(lost, late)
				_ = s.pass("a") // it may fail by the lost write
				s.restart()
				s.live(30, "a", "dpu-a", "b", "dpu-b")
				for range 4 {
					_ = s.pass("a")
				}
				if n, _ := kubetest.Read(s.Host, kubetest.Node("a", nil)); dead(n) || tainted(n) {
					state, words := s.says()
					t.Errorf("its Node says %+v, %+v; Failover is %s: %s", n.Status.Conditions, n.Spec.Taints, state, words)
				}
			})
		}
	}
}
