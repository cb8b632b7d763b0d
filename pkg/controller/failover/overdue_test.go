package failover

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/failover/doubt"
)

var (
	everyone = []string{"a", "dpu-a", "b", "dpu-b"}
	noDPU    = []string{"a", "b", "dpu-b"}
)

// limited lets hosts in doubt fail over after five minutes, or two if it is their DPU.
func limited(s *fixture) {
	s.change(func(o *Options) { o.Doubts = doubt.Limits{NotReady: 5 * time.Minute, DPUSilent: 2 * time.Minute} })
}

// spend lets time pass in which those named beat and passes are made.
func (s *fixture) spend(d time.Duration, who ...string) {
	s.t.Helper()
	for range d / (15 * time.Second) {
		s.live(15, who...)
		s.mustPass()
	}
}

// TestAHostThatStaysNotReady fails over when its time is over and no sooner, with a receipt.
func TestAHostThatStaysNotReady(t *testing.T) {
	s := hung(t)
	limited(s)
	s.mustPass()
	s.wantSays("False/Held", "HostHung", "it fails over once it has been so for 5m0s")
	s.spend(4*time.Minute+45*time.Second, everyone...)
	s.wantPhase(granted)
	s.spend(15*time.Second, everyone...)
	s.wantPhase(fencing)
	s.wantSays("True/Fencing", "it has been so for 5m0s, so it fails over")
	s.spend(time.Minute, everyone...)
	s.wantPhase(fencing)
	if s.tainted("a") || !s.hasPod("app") {
		t.Error("the pod was released without a receipt")
	}
	s.retire()
	s.mustPass()
	s.wantPhase(freed)
	if !s.tainted("a") || s.hasPod("app") {
		t.Error("the pod is not released")
	}
	s.core("a", func(n *corev1.Node) { ready(n).Status = corev1.ConditionTrue })
	s.spend(time.Minute, everyone...)
	s.wantSays("False/Recovered")
}

// TestAHostInDoubtIsNotTakenSooner: what heals, what begins anew, and what another instance
// has seen, does not count.
func TestAHostInDoubtIsNotTakenSooner(t *testing.T) {
	ready := func(status corev1.ConditionStatus) func(*fixture) {
		return func(s *fixture) {
			s.core("a", func(n *corev1.Node) { ready(n).Status = status })
			s.mustPass()
		}
	}
	for name, interrupt := range map[string]func(*fixture){
		"it was Ready in between":        func(s *fixture) { ready(corev1.ConditionTrue)(s); ready(corev1.ConditionUnknown)(s) },
		"another instance has looked":    func(s *fixture) { s.restart(); limited(s); s.live(30, everyone...) },
		"another instance knows nothing": limited,
		"another host has its name": func(s *fixture) {
			n, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode("a"))
			s.Host.Remove(n)
			n.UID, n.ResourceVersion = "", ""
			s.Host.Add(n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := hung(t)
			limited(s)
			s.spend(4*time.Minute+45*time.Second, everyone...)
			interrupt(s)
			s.spend(4*time.Minute+30*time.Second, everyone...)
			s.wantPhase(granted)
			s.spend(time.Minute, everyone...)
			s.wantPhase(fencing)
		})
	}
}

// TestNoDoubtThatTimeDecides: hosts that are held for another reason are held for ever.
func TestNoDoubtThatTimeDecides(t *testing.T) {
	for name, tc := range map[string]struct {
		make func(*fixture)
		who  []string
		says string
	}{
		"the limits are 0": {func(s *fixture) {
			s.change(func(o *Options) { o.Doubts = doubt.Limits{} })
			s.notReady("a")
		}, everyone, "HostHung"},
		"its plugin is not well": {func(*fixture) {}, []string{"kubelet-a", "dpu-a", "b", "dpu-b"}, "HostHung"},
		"its link is cut":        {func(s *fixture) { s.seenDead("a") }, everyone, "HostHung"},
		"nothing is heard of it but its DPU": {func(s *fixture) {
			s.host("a", func(n *moorv1alpha1.DPUStorageNode) { n.Spec.HostMode = moorv1alpha1.ZeroTrust })
		}, []string{"b", "dpu-b"}, "DPUDead"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.live(30, everyone...)
			limited(s)
			tc.make(s)
			s.spend(10*time.Minute, tc.who...)
			s.wantPhase(granted)
			if state, words := s.says(); state != "False/Held" || !strings.HasPrefix(words, tc.says) || strings.Contains(words, "once it has been so") {
				t.Errorf("Failover is %s: %s, want Held: %s", state, words, tc.says)
			}
		})
	}
}

// TestADPUWithALeaseIsNotOverdue: its part ends when its lease is over, and not before.
func TestADPUWithALeaseIsNotOverdue(t *testing.T) {
	s := newLeaseStage(t)
	s.dpuObject(func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.Lease.DurationMillis = time.Hour.Milliseconds() })
	limited(s.fixture)
	s.silent(600)
	s.wantPhase(granted)
	s.wantSays("False/Held", "DPUDead", "the end of its lease is waited for")
}

// TestADPUThatStaysSilent is reset by its BMC, which is the receipt; the pods of its host,
// which lives, go in order and are told why.
func TestADPUThatStaysSilent(t *testing.T) {
	s := newFixture(t)
	host, dpu, keeper := s.bmcs(moorv1alpha1.DPUPowerOwn)
	limited(s)
	s.live(30, noDPU...)
	s.watch(keeper, 115, noDPU...)
	s.wantPhase(granted)
	s.wantSays("False/Held", "DPUDead", "it fails over once it has been so for 2m0s")
	s.Reasons()
	s.watch(keeper, 60, noDPU...)
	s.wantPhase(freed)
	if r := s.claim().Status.Receipts; len(r) != 1 || r[0].Kind != moorv1alpha1.ReceiptPower {
		t.Errorf("receipts %+v", r)
	}
	if len(host.asked) > 0 || len(dpu.asked) != 1 {
		t.Errorf("the host was asked for %q, the DPU for %q", host.asked, dpu.asked)
	}
	if s.tainted("a") || s.hasPod("app") {
		t.Error("the pod of a living host goes in order")
	}
	if told := strings.Join(s.Events(), "\n"); !strings.Contains(told, storagev1alpha1.EventFailoverReleased+" deleted: its volume was taken from host a with a receipt, whose DPU dpu-a is silent") {
		t.Errorf("told:\n%s", told)
	}
}

// TestAHostInDoubtIsNoSureThing: hosts that hang one after the other, as a rollout makes
// them, are stopped by the budget of a window, which what a person requests is not.
func TestAHostInDoubtIsNoSureThing(t *testing.T) {
	s := hung(t)
	limited(s)
	s.spend(6*time.Minute, everyone...)
	p, err := s.f.observer.observe(t.Context(), "a")
	if err != nil || p.action != Fence || p.candidate().sure {
		t.Errorf("%v: action %s, sure %v", err, p.action, p.candidate().sure)
	}
}
