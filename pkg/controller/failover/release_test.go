package failover

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moor-storage/moor/internal/kube/kubetest"
)

func volumeAttachment(volume, host string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: attachmentName(volume, kubetest.Driver, host)}}
}

func (s *fixture) attached(volume, host string) bool {
	s.t.Helper()
	_, found := kubetest.Read(s.Host, volumeAttachment(volume, host))
	return found
}

// TestAttachmentName is held to a VolumeAttachment that Kubernetes 1.35 made.
func TestAttachmentName(t *testing.T) {
	const want = "csi-2f421207362050107387591f9aed4c54a2500b8398e7c8a81ce98be17eb35be7"
	if got := attachmentName("pvc-ede99d3a-809c-4130-91e2-f3444e4d64ee", kubetest.Driver, "host-3"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestDetach: only with a receipt, only of the dead host, and only of what no pod
// stays with.
func TestDetach(t *testing.T) {
	for name, tc := range map[string]struct {
		play func(s *fixture)
		want bool // "vol" is still attached to the dead host after its epoch has ended
	}{
		"its pod goes": {func(*fixture) {}, false},
		"no pod": {func(s *fixture) {
			s.Host.Remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"}})
		}, false},
		"one stays": {func(s *fixture) {
			s.addVolume("two", "a")
			s.addPod("both", "a", "vol", "two")
		}, true},
		"asked for by the node": {func(s *fixture) { s.byNode() }, true},
		"already asked to go": {func(s *fixture) {
			s.Host.Remove(kubetest.DPUVolumeAttachment("vol", "a"))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.Host.Add(volumeAttachment("vol", "a"), volumeAttachment("vol", "b"))
			tc.play(s)
			s.seenDead("a")
			s.mustPass()
			if !s.attached("vol", "a") {
				t.Error("detached without a receipt")
			}
			s.retire()
			s.mustPass()
			s.wantPhase(freed)
			if got := s.attached("vol", "a"); got != tc.want || !s.attached("vol", "b") {
				t.Errorf("attached: %v, want %v; to another host: %v", got, tc.want, s.attached("vol", "b"))
			}
		})
	}
}
