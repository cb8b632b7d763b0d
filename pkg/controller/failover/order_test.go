package failover

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestOthersGetOn: while the fences of other hosts get further, that one waits is not told,
// but not for ever.
func TestOthersGetOn(t *testing.T) {
	s := newFixture(t)
	s.addHost("c")
	for i := range 20 {
		s.addVolume(fmt.Sprintf("of-c-%d", i), "c")
	}
	s.live(10, "a", "dpu-a", "b", "dpu-b", "c", "dpu-c")
	s.seenDead("a")
	s.seenDead("c")
	for _, host := range []string{"a", "c"} {
		if err := s.pass(host); err != nil {
			t.Fatal(err)
		}
	}
	s.Reasons()
	held, begin := 0, s.Clock.Now()
	for i := range 20 {
		s.Step(time.Second)
		name := fmt.Sprintf("of-c-%d", i)
		s.retireOf("c", name)
		s.MustReconcile(s.f, "c")
		s.mustPass()
		held += strings.Count(s.Reasons(), storagev1alpha1.EventFailoverHeld)
		if age := s.Clock.Since(begin); (held > 0) != (age >= busyGrace) {
			t.Fatalf("%d volumes are told of after %s", held, age)
		}
	}
}

// TestBegunWaitsForWhatBegins: the passes that a host asks for.
func TestBegunWaitsForWhatBegins(t *testing.T) {
	s := newFixture(t)
	asks := func() *int {
		result, err := s.f.Reconcile(t.Context(), kube.RequestFor("", "a"))
		if err != nil || result.RequeueAfter == 0 {
			t.Fatalf("%+v, %v", result, err)
		}
		return result.Priority
	}
	s.seenDead("a")
	s.change(func(o *Options) { o.Budget = Budget{} })
	if p := asks(); p != nil {
		t.Errorf("one that is refused has priority %d", *p)
	}
	s.change(func(o *Options) { o.Budget = DefaultBudget })
	if p := asks(); p == nil || *p != kube.Later {
		t.Errorf("one that has begun has priority %v", p)
	}
	for host, want := range map[string]bool{"a": true, "b": false} {
		n, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode(host))
		if got := begun.Update(event.UpdateEvent{ObjectOld: n, ObjectNew: n}); got != want {
			t.Errorf("host %s has begun: %v, want %v", host, got, want)
		}
	}
}

// TestFencesGoBeforeReleases: while the fences of another host get on, a host whose volumes
// are free is not released; it does not wait for one that is stuck, nor for long.
func TestFencesGoBeforeReleases(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(s *fixture)
		released  bool
	}{
		"another gets on":        {func(*fixture) {}, false},
		"another is stuck":       {func(s *fixture) { s.Step(stuckAfter) }, true},
		"another has ended":      {func(s *fixture) { s.retireOf("c", "other"); s.MustReconcile(s.f, "c") }, true},
		"another, for too long":  {func(s *fixture) { s.Step(busyGrace); s.f.fencer.progress.note("c", s.Clock.Now()) }, true},
		"begun before the other": {func(s *fixture) { s.core("a", func(n *corev1.Node) { n.Spec.Taints = outOfService() }) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.addHost("c")
			s.addVolume("other", "c")
			s.live(10, "a", "dpu-a", "b", "dpu-b", "c", "dpu-c")
			s.seenDead("a")
			s.seenDead("c")
			for _, host := range []string{"a", "c"} {
				s.MustReconcile(s.f, host)
			}
			s.retire()
			tc.meanwhile(s)
			result, err := s.f.Reconcile(t.Context(), kube.RequestFor("", "a"))
			if err != nil {
				t.Fatal(err)
			}
			s.wantPhase(freed)
			if s.hasPod("app") == tc.released {
				t.Errorf("released: %v, want %v", !s.hasPod("app"), tc.released)
			}
			if tc.released {
				return
			}
			if s.tainted("a") || result.RequeueAfter != stuckAfter/2 { // before another is known to be stuck
				t.Errorf("tainted: %v, looked at again after %s", s.tainted("a"), result.RequeueAfter)
			}
			s.wantSays("True/Fencing")
		})
	}
}

// retireOf lets the DPU of a host retire the epoch of a volume.
func (s *fixture) retireOf(host, volume string) {
	s.t.Helper()
	kubetest.Change(s.DPU, kubetest.VolumeAttachment(host+"-"+volume, volume, "dpu-"+host), func(m *storagev1alpha1.VolumeAttachment) {
		m.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
	})
}

func outOfService() []corev1.Taint {
	return []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: taintValue, Effect: corev1.TaintEffectNoSchedule}}
}

// TestALostRaceIsNotTold: a failover that could not begin because another has written of the
// host begins with the next pass, and nothing is said of it.
func TestALostRaceIsNotTold(t *testing.T) {
	s := newFixture(t)
	s.seenDead("a")
	old, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode("a"))
	s.host("a", func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.Sequence++ })
	s.CacheShows(old)
	tried := 0
	s.change(func(o *Options) {
		o.Host.Client = interceptor.NewClient(s.Host.Client.(client.WithWatch), interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				tried++
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		})
	})
	if _, err := s.f.Reconcile(t.Context(), kube.RequestFor("", "a")); !apierrors.IsConflict(err) || tried != 1 {
		t.Errorf("%d writes, %v", tried, err)
	}
	s.CacheIsCurrent()
	s.mustPass()
	s.wantSays("True/Fencing")
}
