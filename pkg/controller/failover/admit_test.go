package failover

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// TestStorm: with too many at once nothing begins, and it is said.
func TestStorm(t *testing.T) {
	s := newFixture(t)
	for _, name := range []string{"c", "d"} {
		s.addHost(name)
	}
	s.live(10, "a", "dpu-a", "b", "dpu-b", "c", "dpu-c", "d", "dpu-d")
	for _, name := range []string{"a", "c", "d"} {
		s.seenDead(name)
	}
	s.live(5, "dpu-a", "b", "dpu-b", "dpu-c", "dpu-d")
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("False/Held", "ControlPlaneSick", "3 of 4 hosts look dead at once", "HostDead")
	s.core("d", func(n *corev1.Node) { n.Spec.Unschedulable = true }) // its death is known
	s.mustPass()
	s.wantPhase(fencing)
}

// TestStormIsSeenByWhoHasJustStarted: an instance that has looked at one host
// alone, and heard its DPU, still sees what the DPUs of the others say.
func TestStormIsSeenByWhoHasJustStarted(t *testing.T) {
	s := newFixture(t)
	for _, name := range []string{"c", "d"} {
		s.addHost(name)
	}
	for _, name := range []string{"a", "c", "d"} {
		s.seenDead(name)
	}
	s.restart()
	s.hosts = []string{"a"}
	s.live(10, "dpu-a")
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("False/Held", "ControlPlaneSick", "3 of 4 hosts look dead at once")
}

func TestBudgetIsOnRecord(t *testing.T) {
	s := newFixture(t)
	s.change(func(o *Options) { o.Budget = Budget{PerMinute: 5, PerZone: 1} })
	s.host("b", func(n *moorv1alpha1.DPUStorageNode) {
		n.Status.Conditions = []metav1.Condition{{Type: moorv1alpha1.ConditionFailover, Status: metav1.ConditionTrue, Reason: moorv1alpha1.ReasonFencing, LastTransitionTime: metav1.NewTime(s.Clock.Now())}}
	})
	s.seenDead("a")
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("False/Held", "in zone \"z\" is spent")
	s.live(60, "dpu-a", "b", "dpu-b")
	s.mustPass()
	s.wantPhase(fencing)
}
