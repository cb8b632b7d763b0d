package failover

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// ask is a person's request that host a fails over.
func (s *fixture) ask(change ...func(*moorv1alpha1.FailoverRequest)) {
	s.t.Helper()
	r := &moorv1alpha1.FailoverRequest{DPUName: "dpu-a", Time: metav1.NewTime(s.Clock.Now()), RequestedBy: "jo", Reason: "its disk controller is on fire"}
	for _, c := range change {
		c(r)
	}
	s.host("a", func(n *moorv1alpha1.DPUStorageNode) { n.Spec.Failover = r })
}

// wantAnswer is the condition FailoverRequested, as "status/reason", and what it says.
func (s *fixture) wantAnswer(want string, words ...string) {
	s.t.Helper()
	n, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode("a"))
	have, message := "none", ""
	if c := meta.FindStatusCondition(n.Status.Conditions, moorv1alpha1.ConditionFailoverRequested); c != nil {
		have, message = string(c.Status)+"/"+c.Reason, c.Message
	}
	if have != want {
		s.t.Fatalf("FailoverRequested is %s (%s), want %s", have, message, want)
	}
	for _, w := range words {
		if !strings.Contains(message, w) {
			s.t.Errorf("FailoverRequested says %q, without %q", message, w)
		}
	}
}

// hung is host a whose kubelet is not well: its plugin beats, and its Node is NotReady.
func hung(t *testing.T) *fixture {
	s := newFixture(t)
	s.live(30, "a", "dpu-a", "b", "dpu-b")
	s.notReady("a")
	s.mustPass()
	s.wantSays("False/Held", "HostHung")
	return s
}

// TestARequestedFailoverHasItsReceipt: a host that is held fails over when a person asks for
// it, and frees nothing before the DPU has withdrawn the volume.
func TestARequestedFailoverHasItsReceipt(t *testing.T) {
	s := hung(t)
	s.wantPhase(granted)
	s.ask()
	s.mustPass()
	s.wantAnswer("True/Accepted", "jo asked for it at", "on fire")
	s.wantPhase(fencing)
	for range 3 {
		s.live(5, "a", "dpu-a", "b", "dpu-b")
		s.mustPass()
	}
	s.wantPhase(fencing)
	s.wantSays("True/Fencing", "requested: jo", "waiting for proof that DPU dpu-a")
	if s.tainted("a") || !s.hasPod("app") {
		t.Error("the pod was released without a receipt")
	}
	s.retire()
	s.mustPass()
	s.wantPhase(freed)
	if !s.tainted("a") || s.hasPod("app") {
		t.Error("the pod is not released")
	}
}

// TestARequestOverridesDoubtAboutTheFleet: while many hosts look dead the observer is
// suspect, and a person who knows may ask.
func TestARequestOverridesDoubtAboutTheFleet(t *testing.T) {
	s := newFixture(t)
	for _, name := range []string{"c", "d"} {
		s.addHost(name)
	}
	s.live(30, "a", "dpu-a", "b", "dpu-b", "c", "dpu-c", "d", "dpu-d")
	for _, name := range []string{"a", "c", "d"} {
		s.notReady(name)
	}
	s.live(40, "dpu-a", "b", "dpu-b", "dpu-c", "dpu-d")
	s.mustPass()
	s.wantSays("False/Held", "ControlPlaneSick")
	s.wantPhase(granted)
	s.ask()
	s.mustPass()
	s.wantPhase(fencing)
	s.retire()
	s.mustPass()
	s.wantPhase(freed)
}

// TestPodsOfALivingHostGoInOrder: a host whose programs are heard lets its pods go itself.
func TestPodsOfALivingHostGoInOrder(t *testing.T) {
	s := newFixture(t)
	s.live(40, "a", "b", "dpu-b")
	kubetest.Change(s.Host, kubetest.Pod("app", "a"), func(p *corev1.Pod) { p.Finalizers = []string{"test/kubelet"} })
	s.mustPass()
	s.wantSays("False/Held", "DPUDead")
	s.ask()
	s.mustPass()
	s.wantPhase(fencing)
	s.retire() // it was late, not dead
	s.mustPass()
	s.wantPhase(freed)
	pod, found := kubetest.Read(s.Host, kubetest.Pod("app", "a"))
	if !found || pod.DeletionTimestamp == nil || s.tainted("a") {
		t.Error("the pod was not let go in order")
	}
	if grace := pod.DeletionGracePeriodSeconds; grace != nil && *grace == 0 {
		t.Error("the pod was deleted by force")
	}
}

// TestWhatARequestNames: a request does nothing for another DPU, another boot, another time
// or a host that is well, and says so.
func TestWhatARequestNames(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*fixture, *moorv1alpha1.FailoverRequest)
		answer string
		says   string
	}{
		"another DPU":  {func(_ *fixture, r *moorv1alpha1.FailoverRequest) { r.DPUName = "dpu-old" }, "False/Refused", "it names DPU dpu-old"},
		"another boot": {func(_ *fixture, r *moorv1alpha1.FailoverRequest) { r.BootID = "earlier" }, "False/Refused", `it names boot "earlier"`},
		"no boot, and it has one": {func(s *fixture, _ *moorv1alpha1.FailoverRequest) {
			s.core("a", func(n *corev1.Node) { n.Status.NodeInfo.BootID = "since" })
		}, "False/Refused", `that is "since" now`},
		"old": {func(s *fixture, r *moorv1alpha1.FailoverRequest) {
			r.Time = metav1.NewTime(s.Clock.Now().Add(-15 * time.Minute))
		}, "False/Expired", "write it anew"},
		"of the future": {func(s *fixture, r *moorv1alpha1.FailoverRequest) {
			r.Time = metav1.NewTime(s.Clock.Now().Add(2 * time.Minute))
		}, "False/Refused", "has not come yet"},
		"of a host that is well": {func(s *fixture, _ *moorv1alpha1.FailoverRequest) {
			s.core("a", func(n *corev1.Node) { ready(n).Status = corev1.ConditionTrue })
		}, "False/Refused", "kubectl drain a"},
	} {
		t.Run(name, func(t *testing.T) {
			s := hung(t)
			s.ask(func(r *moorv1alpha1.FailoverRequest) { tc.change(s, r) })
			s.mustPass()
			s.wantAnswer(tc.answer, tc.says)
			s.wantPhase(granted)
		})
	}
}

// TestARefusedRequestDoesNotWait: one that was made while the host was well takes nothing
// after a restart, when nothing is known of any host.
func TestARefusedRequestDoesNotWait(t *testing.T) {
	s := newFixture(t)
	s.ask()
	s.mustPass()
	s.wantAnswer("False/Refused", "the host is healthy")
	s.restart()
	s.mustPass()
	s.wantAnswer("False/NotKnown", "too little is known")
	s.wantPhase(granted)
	s.host("a", func(n *moorv1alpha1.DPUStorageNode) { n.Spec.Failover = nil })
	s.mustPass()
	s.wantAnswer("none")
}

// TestWhatWasRequestedIsBroughtToAnEnd: a request that was begun does not expire, also not
// by a restart; and one that was carried out asks for nothing more.
func TestWhatWasRequestedIsBroughtToAnEnd(t *testing.T) {
	s := hung(t)
	s.ask()
	s.mustPass()
	s.wantPhase(fencing)
	s.live(16*60, "a", "dpu-a", "b", "dpu-b")
	s.mustPass()
	s.wantAnswer("True/Accepted")
	s.retire()
	s.mustPass()
	if s.hasPod("app") {
		t.Error("the pod is not released")
	}
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) { m.Finalizers = nil })
	a := kubetest.DPUVolumeAttachment("vol", "a")
	kubetest.Change(s.Host, a, func(a *storagev1alpha1.DPUVolumeAttachment) { a.Finalizers = nil })
	s.Host.Remove(a)
	s.core("a", func(n *corev1.Node) { ready(n).Status = corev1.ConditionTrue })
	s.live(10, "a", "dpu-a", "b", "dpu-b")
	s.mustPass()
	s.wantSays("False/Recovered")
	s.notReady("a")
	s.mustPass()
	s.wantAnswer("False/CarriedOut")
}

// TestNothingToTake: a request for a host that has no volume that fails over says so.
func TestNothingToTake(t *testing.T) {
	s := hung(t)
	kubetest.Change(s.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) { v.Spec.Replication = nil })
	s.ask()
	s.mustPass()
	s.wantAnswer("False/Refused", "nothing that fails over")
	s.wantPhase(granted)
}
