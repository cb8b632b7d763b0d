package failover

import (
	"fmt"
	"strings"
	"testing"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestAKubeletThatRenewsSpeaksAgainstTheLink: the DPU sees its host dead, and the kubelet
// renews its Lease after that. Only the link is cut; nothing is taken from the host until
// the kubelet, too, is silent.
func TestAKubeletThatRenewsSpeaksAgainstTheLink(t *testing.T) {
	for name, c := range map[string]struct {
		after []string
		phase moorv1alpha1.ClaimPhase
	}{
		"both beat":         {[]string{"a"}, granted},
		"the kubelet alone": {[]string{"kubelet-a"}, granted},
		"neither":           {nil, fencing},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.live(5, "a", "dpu-a", "b", "dpu-b")
			s.seenDead("a")
			s.live(10, append(c.after, "dpu-a", "b", "dpu-b")...)
			s.mustPass()
			s.wantPhase(c.phase)
			if c.phase == fencing {
				return
			}
			s.wantSays("False/Held", "HostHung", "perhaps only the link")
			s.live(15, "dpu-a", "b", "dpu-b")
			s.mustPass()
			s.wantPhase(fencing)
		})
	}
}

// rack is a fixture in which the DPUs of three of four hosts live and see them dead.
func rack(t *testing.T) *fixture {
	s := newFixture(t)
	for _, name := range []string{"c", "d"} {
		s.addHost(name)
	}
	s.live(10, "a", "dpu-a", "b", "dpu-b", "c", "dpu-c", "d", "dpu-d")
	for _, name := range []string{"a", "c", "d"} {
		s.seenDead(name)
	}
	return s
}

// TestARackIsFencedByItsDPUs: too many look dead at once to believe silence alone. Each
// DPU that lives says so of its own host, and heartbeat and kubelet of that are silent as well.
func TestARackIsFencedByItsDPUs(t *testing.T) {
	s := rack(t)
	s.live(5, "dpu-a", "b", "dpu-b", "dpu-c", "dpu-d")
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("False/Held", "ControlPlaneSick", "3 of 4 hosts look dead at once")
	s.live(10, "dpu-a", "b", "dpu-b", "dpu-c", "dpu-d")
	s.mustPass()
	s.wantPhase(fencing)
	s.wantSays("True/Fencing", "HostDead")
}

// TestARackOfWhichTheObserverDoubts: what holds a rack though its DPUs see it dead.
func TestARackOfWhichTheObserverDoubts(t *testing.T) {
	for name, c := range map[string]struct {
		beats []string
		words string
	}{
		"its kubelet renews":    {[]string{"kubelet-a", "dpu-a", "b", "dpu-b", "dpu-c", "dpu-d"}, "HostHung"},
		"its heartbeat goes on": {[]string{"a", "dpu-a", "b", "dpu-b", "dpu-c", "dpu-d"}, "HostHung"},
		"its DPU is silent":     {[]string{"b", "dpu-b", "dpu-c", "dpu-d"}, "BothDead"},
	} {
		t.Run(name, func(t *testing.T) {
			s := rack(t)
			s.live(30, c.beats...)
			s.mustPass()
			s.wantPhase(granted)
			s.wantSays("False/Held", c.words)
		})
	}
	t.Run("all hosts look dead", func(t *testing.T) {
		s := rack(t)
		s.seenDead("b")
		s.live(30, "dpu-a", "dpu-b", "dpu-c", "dpu-d")
		s.mustPass()
		s.wantPhase(granted)
		s.wantSays("False/Held", "ControlPlaneSick", "4 of 4 hosts look dead at once")
	})
	t.Run("the API contradicts other DPUs", func(t *testing.T) {
		s := rack(t)
		for i := range 6 {
			name := fmt.Sprintf("cut-%d", i)
			s.addHost(name)
			s.notReady(name)
		}
		for range 6 {
			s.live(5, "dpu-a", "b", "dpu-b", "dpu-c", "dpu-d", "dpu-cut-0", "dpu-cut-1", "dpu-cut-2", "dpu-cut-3", "dpu-cut-4", "dpu-cut-5")
		}
		s.mustPass()
		s.wantPhase(granted)
		s.wantSays("False/Held", "ControlPlaneSick", "their DPUs see them alive")
	})
}

// TestASeriesOfFalseAlarmsIsStopped: something cuts the links of living hosts to their DPUs
// one after the other, as a rollout does. The first fall to it, since a DPU's word counts at
// once; then their number speaks against it.
func TestASeriesOfFalseAlarmsIsStopped(t *testing.T) {
	s := newFixture(t)
	for i := range 8 {
		name := fmt.Sprintf("h%d", i)
		s.addHost(name)
		s.addVolume("vol-"+name, name)
	}
	var all []string
	for _, name := range s.hosts {
		all = append(all, name, "dpu-"+name)
	}
	s.live(10, all...)
	begun := map[string]bool{}
	for minute := range 8 {
		name := fmt.Sprintf("h%d", minute)
		s.live(50, all...)
		s.seenDead(name)
		s.try(name, begun)
		s.host(name, func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.Host.Alive = true })
		s.live(10, all...)
	}
	if len(begun) != 3 {
		t.Errorf("%d of 10 living hosts were fenced within ten minutes, want 3: %v", len(begun), begun)
	}
}

// try makes a pass over a host and notes whether its failover has begun.
func (s *fixture) try(name string, begun map[string]bool) {
	s.t.Helper()
	if _, err := s.f.Reconcile(s.t.Context(), kube.RequestFor("", name)); err != nil {
		s.t.Fatal(err)
	}
	if n, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode(name)); underway(n) {
		begun[name] = true
	}
}

// TestWhoIsSureBeginsInASeries: a host of which all witnesses agree, or whose failover a
// person wants, begins though many have begun; and it counts for those that come after.
func TestWhoIsSureBeginsInASeries(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	admitted := failovers{"x": {At: now.Add(-5 * time.Minute)}, "y": {At: now.Add(-9 * time.Minute)}, "old": {At: now.Add(-10 * time.Minute)}}
	known := overview{hosts: 9, begun: failovers{"y": {At: now.Add(-9 * time.Minute)}}, ended: failovers{"x": {At: now}}}
	for name, c := range map[string]struct {
		who     candidate
		window  time.Duration
		hosts   int
		refused string
	}{
		"the third of nine":            {candidate{host: "a"}, 10 * time.Minute, 9, "3 of 9 hosts would have failed over within 10m0s"},
		"the third of ten":             {candidate{host: "a"}, 10 * time.Minute, 10, ""},
		"the third of nine, sure":      {candidate{host: "a", sure: true}, 10 * time.Minute, 9, ""},
		"one of those that have begun": {candidate{host: "x"}, 10 * time.Minute, 9, ""},
		"the third of nine, later":     {candidate{host: "a"}, 6 * time.Minute, 9, ""},
		"no bound":                     {candidate{host: "a"}, 0, 9, ""},
		"of many, in words for all":    {candidate{host: "a"}, 20 * time.Minute, 10, "4 of 10 hosts"},
	} {
		t.Run(name, func(t *testing.T) {
			fleet := known
			fleet.hosts = c.hosts
			got := Budget{PerMinute: 10, PerZone: 5, Window: c.window}.exclude(c.who, fleet, admitted, now)
			if (got == "") != (c.refused == "") || !strings.Contains(got, c.refused) {
				t.Errorf("refused %q, want %q", got, c.refused)
			}
		})
	}
}

// TestTheWindowOutlivesARestart: those that have begun are on record for as long as they count.
func TestTheWindowOutlivesARestart(t *testing.T) {
	s := newFixture(t)
	a := &admitted{host: s.Host.Cluster, namespace: kubetest.HostNamespace, clock: s.Clock}
	budget := Budget{PerMinute: 10, PerZone: 10, Window: 10 * time.Minute}
	fleet := overview{hosts: 3}
	for i, host := range []string{"x", "y"} {
		if refused, err := a.enter(t.Context(), candidate{host: host}, budget, fleet); err != nil || refused != "" {
			t.Fatalf("host %d: %q, %v", i, refused, err)
		}
		s.Step(4 * time.Minute)
	}
	again := &admitted{host: s.Host.Cluster, namespace: kubetest.HostNamespace, clock: s.Clock}
	if refused, err := again.enter(t.Context(), candidate{host: "z"}, budget, fleet); err != nil || refused == "" {
		t.Errorf("the third of three within the window, by another process: %q, %v", refused, err)
	}
	s.Step(3 * time.Minute)
	if refused, err := again.enter(t.Context(), candidate{host: "z"}, budget, fleet); err != nil || refused != "" {
		t.Errorf("when the first counts no more: %q, %v", refused, err)
	}
}
