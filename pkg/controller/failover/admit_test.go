package failover

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
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

// spent is a fixture in which the failover of host a has spent the budget, and host c
// is dead too.
func spent(t *testing.T) *fixture {
	s := newFixture(t)
	s.addHost("c")
	s.addVolume("other", "c")
	s.live(10, "a", "dpu-a", "b", "dpu-b", "c", "dpu-c")
	s.change(func(o *Options) { o.Budget = Budget{PerMinute: 1, PerZone: 1} })
	s.seenDead("a")
	s.mustPass()
	s.wantPhase(fencing)
	s.seenDead("c")
	return s
}

// tries makes one pass over host c, and reports whether it has begun to fail over.
func (s *fixture) tries() bool {
	s.t.Helper()
	if _, err := s.f.Reconcile(s.t.Context(), kube.RequestFor("", "c")); err != nil {
		s.t.Fatal(err)
	}
	n, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode("c"))
	return underway(n)
}

// TestABudgetThatIsSpentAsksNothing: while a host waits its turn, no pass asks the API
// server how many have begun, and no pass lists the hosts there.
func TestABudgetThatIsSpentAsksNothing(t *testing.T) {
	s := spent(t)
	_, live := s.counted()
	for range 10 {
		if s.tries() {
			t.Fatal("the budget was exceeded")
		}
	}
	if live.calls["Lease"] != 0 || live.calls["DPUStorageNodeList"] != 0 {
		t.Errorf("%v read live", live.calls)
	}
	s.live(60, "a", "dpu-a", "b", "dpu-b", "dpu-c")
	if !s.tries() {
		t.Error("a host that waited for a minute is still refused")
	}
	if live.calls["Lease"] != 1 || live.calls["DPUStorageNodeList"] != 0 {
		t.Errorf("%v read live for an admission, want one Lease", live.calls)
	}
}

// TestTheBudgetOutlivesACache: a cache that does not show the failover of another host
// yet does not let one more begin, nor does the Lease that was deleted: one of the
// two, or what this process knows, is enough.
func TestTheBudgetOutlivesACache(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.HostNamespace, Name: AdmittedName}}
	hide := func(s *fixture) {
		old, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode("a"))
		old.Status.Conditions = nil
		s.CacheShows(old)
		var list moorv1alpha1.DPUStorageNodeList
		if err := s.Host.Direct.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			list.Items[i].Status.Conditions = nil
		}
		s.CacheLists(&list)
	}
	again := func(s *fixture) {
		s.restart()
		s.change(func(o *Options) { o.Budget = Budget{PerMinute: 1, PerZone: 1} })
		s.live(20, "b", "dpu-b", "dpu-c")
	}
	for name, c := range map[string]struct {
		change func(*fixture)
		begins bool
	}{
		"the same process, old cache":           {hide, false},
		"the same process, no Lease":            {func(s *fixture) { hide(s); s.Host.Remove(lease.DeepCopy()) }, false},
		"another process, old cache":            {func(s *fixture) { again(s); hide(s) }, false},
		"another process, no Lease":             {func(s *fixture) { s.Host.Remove(lease.DeepCopy()); again(s) }, false},
		"another process, no Lease, old cache":  {func(s *fixture) { s.Host.Remove(lease.DeepCopy()); again(s); hide(s) }, true},
		"the Lease says a time that is to come": {func(s *fixture) { s.stamp(lease, 24*time.Hour); again(s); hide(s) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := spent(t)
			if c.change(s); s.tries() != c.begins {
				t.Errorf("begins: %v, want %v", !c.begins, c.begins)
			}
		})
	}
}

// stamp writes into the Lease that host a was admitted at another time.
func (s *fixture) stamp(lease *coordinationv1.Lease, ahead time.Duration) {
	s.t.Helper()
	at := s.Clock.Now().Add(ahead).Format(time.RFC3339Nano)
	kubetest.Change(s.Host, lease.DeepCopy(), func(l *coordinationv1.Lease) {
		l.Annotations = map[string]string{storagev1alpha1.AnnotationFailovers: fmt.Sprintf(`{"a":{"zone":"z","at":%q}}`, at)}
	})
}

// TestAListThatCannotBeRead: the host is held, and it is said why.
func TestAListThatCannotBeRead(t *testing.T) {
	s := newFixture(t)
	s.Host.Add(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: kubetest.HostNamespace, Name: AdmittedName, Annotations: map[string]string{storagev1alpha1.AnnotationFailovers: "?"},
	}})
	s.seenDead("a")
	if err := s.pass("a"); err == nil {
		t.Error("it is no error")
	}
	s.wantPhase(granted)
	s.wantSays("False/Held", "count the failovers of late", "may be deleted")
}

// TestTwoLeadersKeepTheBudget: of two who know the same list one is turned back, and
// learns of the other.
func TestTwoLeadersKeepTheBudget(t *testing.T) {
	s := newFixture(t)
	one, other := Budget{PerMinute: 2, PerZone: 2}, overview{}
	leaders := []*admitted{
		{host: s.Host.Cluster, namespace: kubetest.HostNamespace, clock: s.Clock},
		{host: s.Host.Cluster, namespace: kubetest.HostNamespace, clock: s.Clock},
	}
	enter := func(leader int, host string) (string, error) {
		return leaders[leader].enter(t.Context(), candidate{host: host, zone: "z"}, one, other)
	}
	if refused, err := enter(0, "a"); err != nil || refused != "" {
		t.Fatalf("the first: %q, %v", refused, err)
	}
	if err := leaders[1].read(t.Context(), s.Clock.Now()); err != nil {
		t.Fatal(err)
	}
	if refused, err := enter(0, "b"); err != nil || refused != "" {
		t.Fatalf("the second: %q, %v", refused, err)
	}
	if _, err := enter(1, "c"); !apierrors.IsConflict(err) {
		t.Errorf("the third, by a leader that does not know of the second: %v, want a conflict", err)
	}
	if refused, err := enter(1, "c"); err != nil || refused == "" {
		t.Errorf("the third, again: %q, %v", refused, err)
	}
	if refused, err := enter(1, "a"); err != nil || refused != "" {
		t.Errorf("a host that was admitted already: %q, %v", refused, err)
	}
}

// TestALeaseThatIsDeleted: it is made again, with those whom this process admitted.
func TestALeaseThatIsDeleted(t *testing.T) {
	s := newFixture(t)
	a := &admitted{host: s.Host.Cluster, namespace: kubetest.HostNamespace, clock: s.Clock}
	enter := func(host string) (string, error) {
		return a.enter(t.Context(), candidate{host: host, zone: "z"}, Budget{PerMinute: 2, PerZone: 2}, overview{})
	}
	if refused, err := enter("a"); err != nil || refused != "" {
		t.Fatalf("the first: %q, %v", refused, err)
	}
	s.Host.Remove(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.HostNamespace, Name: AdmittedName}})
	if _, err := enter("b"); err == nil {
		t.Error("written over what is gone")
	}
	if refused, err := enter("b"); err != nil || refused != "" {
		t.Errorf("the second: %q, %v", refused, err)
	}
	if refused, err := enter("c"); err != nil || refused == "" {
		t.Errorf("the third: %q, %v", refused, err)
	}
}

// TestAFailoverThatHasEndedCountsNoMore: its host may take part in another's.
func TestAFailoverThatHasEndedCountsNoMore(t *testing.T) {
	s := spent(t)
	s.Step(2 * fleetAge)
	s.host("a", func(n *moorv1alpha1.DPUStorageNode) {
		n.Status.Conditions = []metav1.Condition{{Type: moorv1alpha1.ConditionFailover, Status: metav1.ConditionFalse, Reason: moorv1alpha1.ReasonRecovered, LastTransitionTime: metav1.NewTime(s.Clock.Now())}}
	})
	if !s.tries() {
		t.Error("a failover that has ended stands in the way")
	}
}

// TestHostsAreAdmittedSideBySide: many hosts die at once, and as many begin as the
// budget allows, with one read of the Lease and one write for each.
func TestHostsAreAdmittedSideBySide(t *testing.T) {
	s := newFixture(t)
	var dead []string
	for i := range 12 {
		dead = append(dead, fmt.Sprintf("dead-%d", i))
		s.addHost(dead[i])
		s.addVolume(fmt.Sprintf("vol-%d", i), dead[i])
	}
	for i := range 30 {
		s.addHost(fmt.Sprintf("well-%d", i))
	}
	s.live(10, "a", "dpu-a", "b", "dpu-b")
	for _, name := range dead {
		s.host(name, func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.Sequence++ })
		s.seenDead(name)
	}
	_, live := s.counted()
	err := forEach(dead, func(name string) error {
		_, err := s.f.Reconcile(t.Context(), kube.RequestFor("", name))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	begun := 0
	for _, name := range dead {
		if n, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode(name)); underway(n) {
			begun++
		}
	}
	if want := DefaultBudget.PerZone; begun != want || s.WritesOn(&coordinationv1.Lease{}) != want || live.calls["Lease"] != 1 {
		t.Errorf("%d begun with %d writes and %d reads of the Lease, want %d, %d and 1", begun, s.WritesOn(&coordinationv1.Lease{}), live.calls["Lease"], want, want)
	}
}

// TestADPUThatTwoHostsName: what such a DPU says may be of either host, so neither is taken
// its volumes by that, nor by a person's request.
func TestADPUThatTwoHostsName(t *testing.T) {
	s := newFixture(t)
	s.addHost("c")
	s.live(10, "a", "dpu-a", "b", "dpu-b", "c", "dpu-c")
	s.host("c", func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName = "dpu-a" })
	s.seenDead("a")
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("False/Held", "DPUStorageNodes a, c all name DPU dpu-a")
	s.host("c", func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName = "dpu-c" })
	s.Step(fleetAge)
	s.mustPass()
	s.wantPhase(fencing)
}
