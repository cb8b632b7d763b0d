package failover

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestTheLastWordOfASilentDPU: that it saw the host dead puts the host out of service,
// with other drivers' volumes, and releases the pods of volumes with many writers. It does
// so only if nothing was heard of the host since, for the word of a DPU that is silent
// never changes.
func TestTheLastWordOfASilentDPU(t *testing.T) {
	for name, tc := range map[string]struct {
		since func(s *fixture)
		want  bool
	}{
		"nothing was heard since": {func(s *fixture) { s.live(5, "dpu-a", "b", "dpu-b") }, true},
		"the host beat since":     {func(s *fixture) { s.live(60, "a", "b", "dpu-b") }, false},
		"its kubelet did":         {func(s *fixture) { s.live(60, "kubelet-a", "b", "dpu-b") }, false},
		"after a restart":         {func(s *fixture) { s.restart(); s.live(5, "b", "dpu-b") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.addVolume("many", "a")
			kubetest.Change(s.Host, kubetest.DPUVolume("many"), manyWriters)
			s.addPod("shared", "a", "many")
			s.core("a", func(n *corev1.Node) {
				n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/other^x"}}
			})
			s.seenDead("a") // and no failover begins, for want of a pass
			tc.since(s)
			s.live(40, "b", "dpu-b")
			s.notReady("a")
			s.mustPass()
			s.wantSays("True/Fencing", "BothDead")
			s.operator(4)
			s.mustPass()
			s.mustPass()
			s.wantPhase(freed)
			if s.tainted("a") != tc.want || s.hasPod("app") == tc.want || s.hasPod("shared") == tc.want {
				t.Errorf("tainted %v, pods %v and %v; want released: %v", s.tainted("a"), s.hasPod("app"), s.hasPod("shared"), tc.want)
			}
			if !tc.want {
				s.wantSays("True/Released", "no DPU saw the host dead since it was last heard")
			}
		})
	}
}
