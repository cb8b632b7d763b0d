package failover

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
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
	s.wantPhase(granted)
	s.Step(fleetAge)
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

// TestStormWithinASecond: others that die within the second in which the fleet was
// looked at for another host are seen before a failover begins.
func TestStormWithinASecond(t *testing.T) {
	s := newFixture(t)
	for _, name := range []string{"c", "d"} {
		s.addHost(name)
	}
	s.live(10, "a", "dpu-a", "b", "dpu-b", "c", "dpu-c", "d", "dpu-d")
	s.seenDead("c")
	if err := s.pass("c"); err != nil {
		t.Fatal(err)
	}
	if s.f.fleet.last.Dead != 1 {
		t.Fatalf("the fleet looks like %+v, want one dead", s.f.fleet.last)
	}
	s.Step(fleetAge - time.Millisecond)
	s.seenDead("a")
	s.seenDead("d")
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("False/Held", "ControlPlaneSick", "3 of 4 hosts look dead at once", "HostDead")
}

// TestTheFleetIsLookedAtOnceForAll: many hosts that are not well look at the fleet
// once a second together, and copy nothing of it.
func TestTheFleetIsLookedAtOnceForAll(t *testing.T) {
	s := newFixture(t)
	var dead []string
	for i := range 10 {
		dead = append(dead, fmt.Sprintf("dead-%d", i))
		s.addHost(dead[i])
		s.addHost(fmt.Sprintf("well-%d", i))
	}
	s.live(10, "a", "dpu-a", "b", "dpu-b")
	for _, name := range dead {
		s.host(name, func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.Sequence++ })
		s.seenDead(name)
	}
	cached, live := s.counted()
	all := func() {
		t.Helper()
		for range 3 {
			for _, name := range dead {
				if _, err := s.f.Reconcile(t.Context(), kube.RequestFor("", name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	all()
	if got := cached.objects["DPUStorageNodeList"]; got != len(s.hosts) || live.all() != 0 {
		t.Errorf("%d hosts were listed by 30 passes, want %d once; %v read live", got, len(s.hosts), live.calls)
	}
	if want := 30 * 4; cached.copies > want {
		t.Errorf("%d objects were copied, want at most %d: those of the hosts themselves", cached.copies, want)
	}
	s.Step(fleetAge)
	all()
	if got := cached.objects["DPUStorageNodeList"]; got != 2*len(s.hosts) {
		t.Errorf("%d hosts were listed within two seconds, want %d twice", got, len(s.hosts))
	}
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
