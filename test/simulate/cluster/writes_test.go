package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestPatchOfOnePart: as an API server does, a patch of the status leaves all else, and one
// that has no status leaves that too.
func TestPatchOfOnePart(t *testing.T) {
	for name, tc := range map[string]struct {
		status      bool
		patch       string
		phase, host string
	}{
		"the status":                {true, `{"status":{"phase":"Failed"},"spec":{"nodeName":"b"}}`, "Failed", "a"},
		"a status without a status": {true, `{"metadata":{"uid":"x"}}`, "Running", "a"},
		"all else":                  {false, `{"status":{"phase":"Failed"},"spec":{"nodeName":"b"}}`, "Running", "b"},
	} {
		s := New("cluster", time.Now)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "a"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		if err := s.Create(pod); err != nil {
			t.Fatal(err)
		}
		if err := s.patch(pod, types.MergePatchType, []byte(tc.patch), tc.status); err != nil {
			t.Fatal(err)
		}
		if got, _ := Find[*corev1.Pod](s, "", "p"); string(got.Status.Phase) != tc.phase || got.Spec.NodeName != tc.host {
			t.Errorf("%s: phase %s on %s, want %s on %s", name, got.Status.Phase, got.Spec.NodeName, tc.phase, tc.host)
		}
	}
}

// TestStrategicPatch: as an API server does, it merges lists by their keys, where a merge patch
// replaces them.
func TestStrategicPatch(t *testing.T) {
	for kind, want := range map[types.PatchType]int{types.StrategicMergePatchType: 2, types.MergePatchType: 1} {
		s := New("cluster", time.Now)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		if err := s.Create(node); err != nil {
			t.Fatal(err)
		}
		if err := s.PatchStatus(node, kind, []byte(`{"status":{"conditions":[{"type":"example.com/Dead","status":"True"}]}}`)); err != nil {
			t.Fatal(err)
		}
		if got, _ := Find[*corev1.Node](s, "", "n"); len(got.Status.Conditions) != want {
			t.Errorf("%s: conditions %+v, want %d", kind, got.Status.Conditions, want)
		}
	}
}
