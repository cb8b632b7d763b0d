package failover

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/event"

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
		kubetest.Change(s.DPU, kubetest.VolumeAttachment("c-"+name, name, "dpu-c"), func(m *storagev1alpha1.VolumeAttachment) {
			m.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
		})
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
