package failover

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/internal/podvolume"
)

func volumeAttachment(volume, host string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: podvolume.AttachmentName(volume, kubetest.Driver, host)}}
}

func (s *fixture) attached(volume, host string) bool {
	s.t.Helper()
	_, found := kubetest.Read(s.Host, volumeAttachment(volume, host))
	return found
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
