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
	s.core("a", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue })
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
	s.mustPass()
	if s.hasPod("app") {
		t.Error("the pod that lost its volume stays")
	}
	if s.tainted("a") {
		t.Error("a healthy host was put out of service")
	}
	s.mustPass()
	s.wantSays("False/Recovered")
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) { m.Finalizers = m.Finalizers[2:] }) // DPU and snap-controller are done
	s.mustPass()
	if _, found := kubetest.Read(s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject("a-vol")}); found {
		t.Error("the attachment that was taken is not made anew")
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
