package failover

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// back lets host a come back.
func (s *fixture) back() {
	s.t.Helper()
	s.host("a", func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.Host = &moorv1alpha1.HostObservation{Alive: true} })
	s.core("a", func(n *corev1.Node) { ready(n).Status = corev1.ConditionTrue })
	s.live(10, "a", "dpu-a", "b", "dpu-b")
}

// TestReturnInTheMiddle: what was begun is brought to an end.
func TestReturnInTheMiddle(t *testing.T) {
	s := newFixture(t)
	s.seenDead("a")
	s.mustPass()
	s.back()
	s.mustPass()
	s.wantPhase(fencing)
	s.wantSays("True/Fencing", "still being fenced")
	s.retire()
	s.mustPass()
	s.wantPhase(freed)
	if s.hasPod("app") {
		t.Error("the pod that lost its volume stays")
	}
	if got := s.taints("a"); len(got) != 1 || got[0] != returning {
		t.Errorf("a healthy host has the taints %+v, want only that no pod comes in the place of one that goes", got)
	}
	s.mustPass()
	s.wantSays("False/Recovered")
	if got := s.taints("a"); len(got) != 0 {
		t.Errorf("a host that was given back has the taints %+v", got)
	}
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) { m.Finalizers = m.Finalizers[2:] }) // DPU and snap-controller are done
	s.mustPass()
	if _, found := kubetest.Read(s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject("a-vol")}); found {
		t.Error("the attachment that was taken is not made anew")
	}
}

var returning = corev1.Taint{Key: moorv1alpha1.TaintReturning, Effect: corev1.TaintEffectNoSchedule}

func (s *fixture) taints(host string) []corev1.Taint {
	n, _ := kubetest.Read(s.Host, kubetest.Node(host, nil))
	return n.Spec.Taints
}

// TestReturnEndsThoughPodsComeBack: a pod that can run on the host alone comes back at once
// each time it is deleted, as a StatefulSet's does. It has to wait until the host is given back.
func TestReturnEndsThoughPodsComeBack(t *testing.T) {
	s := newFixture(t)
	s.seenDead("a")
	s.mustPass()
	s.back()
	s.retire()
	for range 5 {
		s.mustPass()
		if !s.hasPod("app") && len(s.taints("a")) == 0 {
			s.Host.Add(kubetest.Pod("app", "a", "vol"))
		}
	}
	s.wantSays("False/Recovered")
	if !s.hasPod("app") {
		t.Error("the pod that came after the host was given back is deleted")
	}
}

func TestReturn(t *testing.T) {
	s := newFixture(t)
	s.seenDead("a")
	s.mustPass()
	s.retire()
	s.mustPass()
	s.back()
	s.Host.Remove(kubetest.DPUVolumeAttachment("vol", "a"))
	s.mustPass()
	s.wantSays("True/Returning", "still being detached")
	if !s.tainted("a") {
		t.Error("back in service before all is detached")
	}
	kubetest.Change(s.Host, kubetest.DPUVolumeAttachment("vol", "a"), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Finalizers = nil })
	s.mustPass()
	s.wantSays("False/Recovered")
	if s.tainted("a") {
		t.Error("not back in service")
	}
	writes := s.Writes()
	s.mustPass()
	if s.Writes() != writes {
		t.Error("writes though all is well")
	}
}

// TestPersonsTaint: an out-of-service taint that a person put stays.
func TestPersonsTaint(t *testing.T) {
	s := newFixture(t)
	s.core("a", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: "jo", Effect: corev1.TaintEffectNoExecute}}
	})
	s.seenDead("a")
	s.mustPass()
	s.retire()
	s.mustPass()
	kubetest.Change(s.Host, kubetest.DPUVolumeAttachment("vol", "a"), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Finalizers = nil })
	s.Host.Remove(kubetest.DPUVolumeAttachment("vol", "a"))
	s.back()
	s.mustPass()
	n, _ := kubetest.Read(s.Host, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Value != "jo" {
		t.Errorf("taints %+v", n.Spec.Taints)
	}
}
