package failover

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/failover/powerproof"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/power"
	"github.com/moor-storage/moor/pkg/power/redfish"
)

// powered is a machine with a BMC that does what it is asked.
type powered struct {
	s     *fixture
	is    power.Reading
	asked []string
	// feeds: it is the host, from which the DPU has its power.
	feeds bool
}

// powerless reports whether the DPU has lost all that it had since the claim went to Fencing, and what
// it had sent must have arrived.
func (s *fixture) powerless(claim string) bool {
	since, known := s.fenced[claim]
	return known && !s.lost.Before(since) && s.Clock.Since(s.lost) >= powerproof.DefaultDrain
}

func (m *powered) Read(context.Context) (power.Reading, error) {
	m.is.At = m.s.Clock.Now()
	return m.is, nil
}

// do is a request: none comes before the right to write is being taken.
func (m *powered) do(what string) error {
	m.s.t.Helper()
	if c := m.s.claim().Status; c.Phase != fencing && what != "on" {
		m.s.t.Errorf("%s is asked for while the claim is %s", what, c.Phase)
	}
	m.asked = append(m.asked, what)
	return nil
}

func (m *powered) PowerOff(context.Context) error {
	m.is.System = power.StateOff
	if m.feeds {
		m.s.lost = m.s.Clock.Now()
	}
	return m.do("off")
}

func (m *powered) PowerOn(context.Context) error {
	m.is.System = power.StateOn
	return m.do("on")
}

func (m *powered) Restart(context.Context) error {
	m.is.LastReset = m.is.LastReset.Add(time.Hour)
	m.s.lost = m.s.Clock.Now()
	return m.do("reset")
}

// bmcs gives host a and its DPU a BMC each.
func (s *fixture) bmcs(source moorv1alpha1.DPUPowerSource) (host, dpu *powered, keeper *powerproof.Keeper) {
	host = &powered{s: s, is: power.Reading{Is: power.Identity{SerialNumber: "H"}, System: power.StateOn}}
	dpu = &powered{s: s, is: power.Reading{Is: power.Identity{SerialNumber: "D"}, System: power.StateOn, LastReset: time.Unix(1e6, 0)}}
	host.feeds = source == moorv1alpha1.DPUPowerHost
	c := &moorv1alpha1.PowerControl{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.HostNamespace, Name: "a", Generation: 1}}
	c.Spec = moorv1alpha1.PowerControlSpec{
		Host: &moorv1alpha1.BMC{Address: "https://host", SerialNumber: "H", SecretName: "bmc"}, DPU: &moorv1alpha1.BMC{Address: "https://dpu", SerialNumber: "D", SecretName: "bmc"},
		DPUPower: source, PowerOn: moorv1alpha1.PowerOnReleased,
	}
	s.Host.Add(c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.HostNamespace, Name: "bmc"}, Data: map[string][]byte{"username": []byte("u"), "password": []byte("p")}})
	keeper = powerproof.New(powerproof.Options{
		Host: s.Host.Cluster, Namespace: kubetest.HostNamespace, Clock: s.Clock, After: powerproof.DefaultAfter, Drain: powerproof.DefaultDrain, Silent: s.f.o.Observer.DPUSilentSince,
		Connect: func(c redfish.Config) (power.Machine, error) {
			if c.Endpoint == "https://host" {
				return host, nil
			}
			return dpu, nil
		},
	})
	s.change(func(o *Options) { o.Power = keeper })
	return host, dpu, keeper
}

// watch lets seconds pass in which BMCs are asked beside the passes; those named beat.
func (s *fixture) watch(keeper *powerproof.Keeper, seconds int, who ...string) {
	s.t.Helper()
	for range seconds / 5 {
		s.live(5, who...)
		s.mustPass()
		s.Step(time.Millisecond) // what is read is read after the claim was seen in Fencing
		if _, err := keeper.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: kubetest.HostNamespace, Name: "a"}}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// TestPower: host and DPU are dead, and the storage does not revoke, though its vendor vouches for it: the
// host is switched off once that was waited for, which frees the claim, and releases its pods. Then
// the host is switched on again.
func TestPower(t *testing.T) {
	s := newFixture(t)
	s.vouch()
	host, dpu, keeper := s.bmcs(moorv1alpha1.DPUPowerHost)
	s.live(40, "b", "dpu-b")
	s.notReady("a")
	s.mustPass()
	s.wantPhase(fencing)
	s.watch(keeper, 10, "b", "dpu-b")
	if len(host.asked) > 0 {
		t.Fatal("switched off before other proofs were waited for")
	}
	s.watch(keeper, 20, "b", "dpu-b")
	s.wantPhase(fencing)
	s.wantSays("True/Fencing", "power: the host with serial number H")
	s.watch(keeper, 20, "b", "dpu-b")
	s.wantPhase(freed)
	if r := s.claim().Status.Receipts; len(r) != 1 || r[0].Kind != moorv1alpha1.ReceiptPower {
		t.Errorf("receipts %+v", r)
	}
	if !s.tainted("a") || s.hasPod("app") || s.claim().Status.RevokedEpoch("dpu-a") != 4 {
		t.Error("not released, or not on record that the DPU has to clear up")
	}
	s.watch(keeper, 10, "b", "dpu-b")
	if len(host.asked) != 2 || host.asked[1] != "on" || len(dpu.asked) > 0 {
		t.Errorf("the host was asked for %q, the DPU for %q", host.asked, dpu.asked)
	}
}

// TestPowerAlone: the vendor cannot revoke, so no other proof is waited for.
func TestPowerAlone(t *testing.T) {
	s := newFixture(t)
	host, _, keeper := s.bmcs(moorv1alpha1.DPUPowerHost)
	s.live(40, "b", "dpu-b")
	s.notReady("a")
	s.watch(keeper, 5, "b", "dpu-b")
	if s.wantPhase(fencing); len(host.asked) != 1 {
		t.Errorf("the host was asked for %q", host.asked)
	}
}

// TestPowerOfTheCard: a card with power of its own is reset; its host is not touched.
func TestPowerOfTheCard(t *testing.T) {
	s := newFixture(t)
	host, dpu, keeper := s.bmcs(moorv1alpha1.DPUPowerOwn)
	s.live(40, "b", "dpu-b")
	s.notReady("a")
	s.watch(keeper, 45, "b", "dpu-b")
	s.wantPhase(freed)
	if len(host.asked) > 0 || len(dpu.asked) != 1 {
		t.Errorf("the host was asked for %q, the DPU for %q", host.asked, dpu.asked)
	}
}

// TestPowerNotNeeded: no machine is touched where another proof comes in time, while nothing fails
// over, or while the DPU is heard and the host lives.
func TestPowerNotNeeded(t *testing.T) {
	s := newFixture(t)
	host, dpu, keeper := s.bmcs(moorv1alpha1.DPUPowerHost)
	all := []string{"a", "dpu-a", "b", "dpu-b"}
	s.watch(keeper, 60, all...)
	s.live(40, "a", "b", "dpu-b") // its DPU is dead alone: held
	s.watch(keeper, 60, "a", "b", "dpu-b")
	s.wantPhase(granted)
	s.live(20, all...)
	s.seenDead("a")
	s.mustPass()
	s.wantPhase(fencing)
	s.watch(keeper, 10, "dpu-a", "b", "dpu-b")
	s.retire()
	s.watch(keeper, 60, "dpu-a", "b", "dpu-b")
	s.wantPhase(freed)
	if len(host.asked)+len(dpu.asked) > 0 {
		t.Errorf("the host was asked for %q, the DPU for %q", host.asked, dpu.asked)
	}
}

// TestPowerOfASlowBMC: the DPU's own word comes while a BMC is to be asked: it is not asked any more.
func TestPowerOfASlowBMC(t *testing.T) {
	s := newFixture(t)
	host, _, keeper := s.bmcs(moorv1alpha1.DPUPowerHost)
	s.seenDead("a")
	for range 5 {
		s.mustPass()
		s.live(5, "dpu-a", "b", "dpu-b")
	}
	s.mustPass()
	s.wantPhase(fencing)
	s.retire()
	s.mustPass()
	s.wantPhase(freed)
	if _, err := keeper.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: kubetest.HostNamespace, Name: "a"}}); err != nil || len(host.asked) > 0 {
		t.Errorf("the host was asked for %q, %v", host.asked, err)
	}
}

// TestPowerOfAHostThatHangs: the DPU of a host that is seen dead is heard, and cannot let go: the host is
// switched off so that it can, and that alone is no proof.
func TestPowerOfAHostThatHangs(t *testing.T) {
	s := newFixture(t)
	host, dpu, keeper := s.bmcs(moorv1alpha1.DPUPowerOwn)
	s.seenDead("a")
	s.watch(keeper, 90, "dpu-a", "b", "dpu-b")
	s.wantPhase(fencing)
	s.wantSays("True/Fencing", "so that DPU dpu-a, which is heard, can let go")
	if len(host.asked) != 1 || len(dpu.asked) > 0 {
		t.Errorf("the host was asked for %q, the DPU for %q", host.asked, dpu.asked)
	}
	s.retire()
	s.mustPass()
	s.wantPhase(freed)
}

// TestPowerOfALyingBMC: a BMC that says Off of a host whose DPU is heard is not believed.
func TestPowerOfALyingBMC(t *testing.T) {
	s := newFixture(t)
	host, _, keeper := s.bmcs(moorv1alpha1.DPUPowerHost)
	s.seenDead("a")
	s.watch(keeper, 120, "dpu-a", "b", "dpu-b")
	s.wantPhase(fencing)
	if host.is.System != power.StateOff {
		t.Fatal("the BMC does not say Off")
	}
}

// TestPowerAfterARestart: the next instance knows nothing, asks anew, and comes to the same end.
func TestPowerAfterARestart(t *testing.T) {
	for at := 5; at < 60; at += 5 {
		s := newFixture(t)
		_, _, keeper := s.bmcs(moorv1alpha1.DPUPowerHost)
		s.live(40, "b", "dpu-b")
		s.notReady("a")
		s.watch(keeper, at, "b", "dpu-b")
		s.restart()
		s.Host.Remove(&moorv1alpha1.PowerControl{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.HostNamespace, Name: "a"}}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.HostNamespace, Name: "bmc"}})
		_, _, keeper = s.bmcs(moorv1alpha1.DPUPowerHost)
		before := s.claim().Status.Phase
		s.watch(keeper, 25, "b", "dpu-b")
		if before == fencing {
			s.wantPhase(fencing)
		}
		s.watch(keeper, 90, "b", "dpu-b")
		s.wantPhase(freed)
	}
}

// TestSilentSince: what cannot be heard is no silence.
func TestSilentSince(t *testing.T) {
	s := newFixture(t)
	now := s.Clock.Now()
	s.live(30, "a", "b", "dpu-b")
	if got := s.f.o.Observer.DPUSilentSince("a"); got.After(now) {
		t.Errorf("silent since %s, want %s", got, now)
	}
	if got := s.f.o.Observer.DPUSilentSince("b"); !got.Equal(s.Clock.Now()) {
		t.Errorf("a DPU that beats is silent since %s, now is %s", got, s.Clock.Now())
	}
	for range 10 {
		s.Step(time.Second)
		s.f.o.Observer.SelfHeartbeat(nodehealth.HostCluster)
	}
	if got := s.f.o.Observer.DPUSilentSince("a"); !got.Equal(s.Clock.Now()) {
		t.Errorf("silent since %s while nothing comes from the DPU cluster", got)
	}
}
