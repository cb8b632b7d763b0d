package failover

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// beginning is a pass over host a, which is seen dead, before its failover begins.
func (s *fixture) beginning() *pass {
	s.t.Helper()
	s.seenDead("a")
	p, err := s.f.observer.observe(s.t.Context(), "a")
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.f.targets.look(s.t.Context(), p); err != nil || !p.begins() {
		s.t.Fatalf("%v, it begins: %t", err, p.begins())
	}
	return p
}

// TestEachReadOfAnAdmissionFails: where the fleet, or who was admitted, cannot be read, no
// failover begins: how many look dead is not known, nor how many have begun.
func TestEachReadOfAnAdmissionFails(t *testing.T) {
	for name, tc := range map[string]struct {
		run    func(*admission, context.Context, *pass) error
		least  int
		begins bool
	}{
		"refuse": {(*admission).refuse, 5, false},
		"admit":  {(*admission).admit, 5, true},
	} {
		t.Run(name, func(t *testing.T) {
			for at := 1; ; at++ {
				s := newFixture(t)
				p, f := s.beginning(), &fails{at: at}
				s.change(func(o *Options) {
					o.Host = kube.Cluster{Client: f.of(s.Host.Client), Live: f.of(s.Host.Live)}
					o.DPU = kube.Cluster{Client: f.of(s.DPU.Client), Live: f.of(s.DPU.Live)}
				})
				before := s.Writes()
				err := tc.run(s.f.admission, t.Context(), p)
				if f.n < at {
					if err != nil || p.refused != "" || f.n < tc.least || p.underway != tc.begins {
						t.Errorf("%v, refused %q, after %d reads; under way: %t", err, p.refused, f.n, p.underway)
					}
					return
				}
				if state, _ := s.says(); !errors.Is(err, errNoAnswer) || p.underway || s.Writes() != before || state != "none" {
					t.Errorf("read %d: %v, under way: %t, %d writes", at, err, p.underway, s.Writes()-before)
				}
			}
		})
	}
}

// TestWhatHasBegunIsNotRefused: a budget that is spent stops no failover that is under way, and
// nothing is refused to a host from which nothing is to be taken. Nothing is read for either.
func TestWhatHasBegunIsNotRefused(t *testing.T) {
	for name, is := range map[string]func(*pass){
		"under way": func(p *pass) { p.underway = true },
		"held":      func(p *pass) { p.action = Hold },
	} {
		s := newFixture(t)
		p, f := s.beginning(), &fails{}
		is(p)
		s.change(func(o *Options) { o.Budget, o.Host = Budget{}, kube.Cluster{Client: f.of(s.Host.Client)} })
		if err := s.f.admission.refuse(t.Context(), p); err != nil || p.refused != "" || f.n != 0 {
			t.Errorf("%s: refused %q, %v, after %d reads", name, p.refused, err, f.n)
		}
	}
}

// TestNothingBeginsOffTheRecord: nothing is taken from a host whose failover could not be
// written down, neither in the list of those that were admitted nor in its condition.
func TestNothingBeginsOffTheRecord(t *testing.T) {
	for n, says := range []string{"record the failover of host a in Lease users/snap-host-controller-failovers", "write the conditions of DPUStorageNode a"} {
		s := newFixture(t)
		s.seenDead("a")
		s.LoseWrite(n+1, false)
		if err := s.pass("a"); !errors.Is(err, kubetest.ErrLost) {
			t.Errorf("write %d: %v", n+1, err)
		}
		s.wantPhase(granted)
		s.wantSays("False/Held", says)
		s.mustPass()
		s.wantPhase(fencing)
		s.wantSays("True/Fencing")
	}
}

// TestWhoIsToldOfABeginning: the host, and each volume of which no fence says it.
func TestWhoIsToldOfABeginning(t *testing.T) {
	for many, want := range map[bool]int{false: 1, true: 2} {
		s := newFixture(t)
		if many {
			kubetest.Change(s.Host, kubetest.DPUVolume("vol"), manyWriters)
		}
		p := s.beginning()
		if err := s.f.admission.admit(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if told := strings.Count(s.Reasons(), storagev1alpha1.EventFailoverDetected); told != want {
			t.Errorf("many writers %t: told %d times, want %d", many, told, want)
		}
	}
}

// TestCandidate: a host is sure to be dead if all its witnesses say so, or a person does.
func TestCandidate(t *testing.T) {
	for name, tc := range map[string]struct {
		p    pass
		sure bool
	}{
		"neither":         {pass{}, false},
		"all agree":       {pass{unanimous: true}, true},
		"a person's word": {pass{request: request{counts: true}}, true},
	} {
		tc.p.node, tc.p.core = kubetest.DPUStorageNode("a"), kubetest.Node("a", map[string]string{"topology.kubernetes.io/zone": "z"})
		if got := tc.p.candidate(); got != (candidate{host: "a", zone: "z", sure: tc.sure}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestExclude: what begins in another zone spends the budget of that one, and what is no bound
// bounds nothing, however the clocks differ that have stamped the others.
func TestExclude(t *testing.T) {
	now := kubetest.Begin
	three := func(at time.Time, zone string) overview {
		return overview{hosts: 9, begun: failovers{"x": {Zone: zone, At: at}, "y": {Zone: zone, At: at}, "w": {Zone: zone, At: at}}}
	}
	for name, tc := range map[string]struct {
		fleet   overview
		budget  Budget
		refused string
	}{
		"three of its zone":              {three(now, "z"), Budget{PerMinute: 9, PerZone: 3}, `in zone "z" is spent`},
		"three of another":               {three(now, "other"), Budget{PerMinute: 9, PerZone: 3}, ""},
		"three in all":                   {three(now, "other"), Budget{PerMinute: 3, PerZone: 3}, "the budget of 3 failovers a minute"},
		"as short as a window can be":    {three(now, "z"), Budget{PerMinute: 9, PerZone: 9, Window: 1}, "4 of 9 hosts"},
		"no window":                      {three(now, "z"), Budget{PerMinute: 9, PerZone: 9}, ""},
		"no window, of a clock ahead":    {three(now.Add(time.Hour), "z"), Budget{PerMinute: 9, PerZone: 9}, ""},
		"before a window that is longer": {three(now.Add(-2*time.Minute), "z"), Budget{PerMinute: 3, PerZone: 3, Window: time.Minute}, ""},
	} {
		got := tc.budget.exclude(candidate{host: "a", zone: "z"}, tc.fleet, nil, now)
		if (got == "") != (tc.refused == "") || !strings.Contains(got, tc.refused) {
			t.Errorf("%s: refused %q, want %q", name, got, tc.refused)
		}
	}
}

// TestDefaultBudget is what docs/failover.md names: ten hosts a minute, five of them in one
// zone, and a window of ten minutes.
func TestDefaultBudget(t *testing.T) {
	for begun, begins := range map[[2]int]bool{{9, 4}: true, {10, 4}: false, {9, 5}: false} {
		if refused := DefaultBudget.refuse(begun[0], begun[1], "z"); (refused == "") != begins {
			t.Errorf("%d begun, %d of them in the zone: refused %q", begun[0], begun[1], refused)
		}
	}
	if DefaultBudget.Window != 10*time.Minute {
		t.Errorf("the window is %s", DefaultBudget.Window)
	}
}

// leader is one more process that admits failovers.
func (s *fixture) leader() *admitted {
	return &admitted{host: s.Host.Cluster, namespace: kubetest.HostNamespace, clock: s.Clock}
}

// enter has a leader admit a host; of those that begin within a minute it admits one.
func (s *fixture) enter(a *admitted, host string) (string, error) {
	s.t.Helper()
	return a.enter(s.t.Context(), candidate{host: host, zone: "z"}, Budget{PerMinute: 1, PerZone: 1}, overview{})
}

// TestTheLeaseKnowsBetter: a host that another leader has admitted again counts from then, and
// not from when this process had admitted it.
func TestTheLeaseKnowsBetter(t *testing.T) {
	s := newFixture(t)
	one, other := s.leader(), s.leader()
	for _, a := range []*admitted{one, other} {
		if refused, err := s.enter(a, "x"); err != nil || refused != "" {
			t.Fatalf("%q, %v", refused, err)
		}
		s.Step(50 * time.Second)
	}
	if _, err := s.enter(one, "y"); !apierrors.IsConflict(err) {
		t.Fatalf("got %v, want a conflict", err)
	}
	if refused, err := s.enter(one, "y"); err != nil || refused == "" {
		t.Errorf("50 s after x was admitted again: refused %q, %v", refused, err)
	}
	s.Step(10 * time.Second)
	if refused, err := s.enter(one, "y"); err != nil || refused != "" {
		t.Errorf("a minute after that: refused %q, %v", refused, err)
	}
}

// TestAClockThatWasAhead: what is stamped with a time that has not come counts from now, and
// for no longer than all else.
func TestAClockThatWasAhead(t *testing.T) {
	s := newFixture(t)
	if _, err := s.enter(s.leader(), "a"); err != nil {
		t.Fatal(err)
	}
	s.stamp(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.HostNamespace, Name: AdmittedName}}, 24*time.Hour)
	again := s.leader()
	for after, admits := range []bool{false, false, true} {
		if refused, err := s.enter(again, "c"); err != nil || (refused == "") != admits {
			t.Errorf("after %d × 30 s: refused %q, %v", after, refused, err)
		}
		s.Step(30 * time.Second)
	}
}

// TestWhatIsOldIsLeftOut: the list holds who was admitted within the minute or the window,
// whichever is longer, and does not grow with those that ever were.
func TestWhatIsOldIsLeftOut(t *testing.T) {
	for window, kept := range map[time.Duration]time.Duration{0: time.Minute, 10 * time.Minute: 10 * time.Minute} {
		s := newFixture(t)
		a := s.leader()
		list := func() []string {
			lease, _ := kubetest.Read(s.Host, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.HostNamespace, Name: AdmittedName}})
			var out failovers
			if err := json.Unmarshal([]byte(lease.Annotations[storagev1alpha1.AnnotationFailovers]), &out); err != nil {
				t.Fatal(err)
			}
			return slices.Sorted(maps.Keys(out))
		}
		for _, step := range []struct {
			after time.Duration
			host  string
			want  []string
		}{{0, "a", []string{"a"}}, {kept - time.Second, "b", []string{"a", "b"}}, {time.Second, "c", []string{"b", "c"}}} {
			s.Step(step.after)
			if refused, err := a.enter(t.Context(), candidate{host: step.host}, Budget{PerMinute: 9, PerZone: 9, Window: window}, overview{hosts: 100}); err != nil || refused != "" {
				t.Fatalf("%q, %v", refused, err)
			}
			if got := list(); !slices.Equal(got, step.want) || !slices.Equal(slices.Sorted(maps.Keys(a.known())), step.want) {
				t.Errorf("window %s, after %s: %q in the Lease, %v known, want %q", window, step.after, got, a.known(), step.want)
			}
		}
	}
}
