package failover

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
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

// TestDetachIsAskedForOnce: an attacher that hangs holds the VolumeAttachments, and is
// not asked again with each pass; it is after a while, and for another attachment.
func TestDetachIsAskedForOnce(t *testing.T) {
	s := newFixture(t)
	s.addVolume("two", "a")
	for _, volume := range []string{"vol", "two"} {
		va := volumeAttachment(volume, "a")
		va.Finalizers = []string{"external-attacher/hangs"}
		s.Host.Add(va)
	}
	deletes := 0
	s.change(func(o *Options) {
		o.Host.Client = interceptor.NewClient(s.Host.Client.(client.WithWatch), interceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if _, ok := o.(*storagev1.VolumeAttachment); ok {
					deletes++
				}
				return c.Delete(ctx, o, opts...)
			},
		})
	})
	s.seenDead("a")
	s.mustPass()
	s.retire()
	want := func(n int) {
		t.Helper()
		for range 3 {
			s.mustPass()
		}
		if deletes != n {
			t.Errorf("%d deletions were asked for, want %d", deletes, n)
		}
	}
	want(1) // of the volume whose epoch has ended

	const step = 5 * time.Second // of live
	s.live(int((askAgain-step)/time.Second), "dpu-a", "b", "dpu-b")
	want(1)
	s.live(int(step/time.Second), "dpu-a", "b", "dpu-b")
	want(2)
	a, _ := kubetest.Read(s.Host, kubetest.DPUVolumeAttachment("vol", "a"))
	kubetest.Change(s.Host, a, func(a *storagev1alpha1.DPUVolumeAttachment) { a.Finalizers = nil })
	s.Host.Remove(a)
	s.Host.Add(kubetest.DPUVolumeAttachment("vol", "a"))
	want(3)
}

// TestDetachOfAnAttachmentThatComesLate: Kubernetes may ask for the volume at a host after
// the failover has looked, as for a pod that was bound in the very last moment, and waits
// two minutes for an attachment that is neither there nor being deleted.
func TestDetachOfAnAttachmentThatComesLate(t *testing.T) {
	s := newFixture(t)
	s.seenDead("a")
	s.mustPass()
	s.retire()
	for range 3 {
		s.mustPass()
	}
	s.Host.Add(volumeAttachment("vol", "a"))
	s.mustPass()
	if s.attached("vol", "a") {
		t.Error("it stays")
	}
}
