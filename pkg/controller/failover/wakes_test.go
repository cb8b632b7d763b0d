package failover

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// wakes counts how often the observer wakes each host.
type wakes struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	by map[string]int
}

func (w wakes) Add(r reconcile.Request) { w.by[r.Name]++ }

// woken counts from now on.
func (s *fixture) woken() map[string]int {
	s.t.Helper()
	w := wakes{by: map[string]int{}}
	if err := s.f.o.Observer.Source(matters).Start(s.t.Context(), w); err != nil {
		s.t.Fatal(err)
	}
	return w.by
}

// looksAgain passes, and says when the next pass comes without a cause.
func (s *fixture) looksAgain() time.Duration {
	s.t.Helper()
	result, err := s.f.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "a"}})
	if err != nil {
		s.t.Fatal(err)
	}
	return result.RequeueAfter
}

// TestBeatsWakeNoPass: neither by what is observed nor by the objects, and a host that
// is well asks for no pass by itself.
func TestBeatsWakeNoPass(t *testing.T) {
	s := newFixture(t)
	s.live(40, "a", "dpu-a", "b", "dpu-b")
	woken := s.woken()
	for range 10 {
		before, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode("a"))
		s.live(10, "a", "dpu-a", "b", "dpu-b")
		s.f.o.Observer.Review()
		after, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode("a"))
		if before.ResourceVersion == after.ResourceVersion {
			t.Fatal("no heartbeat was written")
		}
		if hostChanged(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
			t.Errorf("a heartbeat wakes a pass: %+v", after.Status)
		}
		if observedReport := s.f.observedChanged(); observedReport.Update(event.TypedUpdateEvent[*moorv1alpha1.DPUStorageNode]{ObjectOld: before, ObjectNew: after}) {
			t.Errorf("a heartbeat of the DPU wakes a pass: %+v", after.Status)
		}
		if again := s.looksAgain(); again != 0 {
			t.Errorf("looks again after %s", again)
		}
	}
	if len(woken) != 0 {
		t.Errorf("heartbeats woke %v", woken)
	}
}

// TestWhatWakes: of a host's object, what it is and what is said of it.
func TestWhatWakes(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*moorv1alpha1.DPUStorageNode)
		want   bool
	}{
		"functions": {func(n *moorv1alpha1.DPUStorageNode) {
			n.Status.DPU.Functions = []moorv1alpha1.FunctionCount{{Type: "vf"}}
		}, false},
		"another DPU":    {func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName = "another" }, true},
		"zero trust":     {func(n *moorv1alpha1.DPUStorageNode) { n.Spec.HostMode = moorv1alpha1.ZeroTrust }, true},
		"the DPU's word": {func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.Host = &moorv1alpha1.HostObservation{} }, true},
		"a condition":    {func(n *moorv1alpha1.DPUStorageNode) { n.Status.Conditions = []metav1.Condition{{Type: "Ready"}} }, true},
		"a resync":       {func(n *moorv1alpha1.DPUStorageNode) { n.ResourceVersion = "1" }, true},
	} {
		before := kubetest.DPUStorageNode("a")
		before.ResourceVersion, before.Status.DPU = "1", &moorv1alpha1.DPUState{}
		after := before.DeepCopy()
		after.ResourceVersion = "2"
		tc.change(after)
		if got := hostChanged(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestWhatMatters: every part of an observation by which a host is classified.
func TestWhatMatters(t *testing.T) {
	for name, tc := range map[string]struct {
		after nodehealth.Observation
		want  bool
	}{
		"nothing":       {nodehealth.Observation{}, false},
		"the host":      {nodehealth.Observation{Host: nodehealth.Quiet}, true},
		"the DPU":       {nodehealth.Observation{DPU: nodehealth.Quiet}, true},
		"the kubelet":   {nodehealth.Observation{Kubelet: nodehealth.Quiet}, true},
		"its report":    {nodehealth.Observation{HostSeen: nodehealth.SeenDead}, true},
		"its evidence":  {nodehealth.Observation{Message: "no link"}, true},
		"zero trust":    {nodehealth.Observation{ZeroTrust: true}, true},
		"heard at last": {nodehealth.Observation{HostUnheard: true, DPUUnheard: true}, false},
		"grown up":      {nodehealth.Observation{Young: true}, false},
	} {
		if got := matters(nodehealth.Observation{}, tc.after); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestUnwellIsLookedAtAgain: what is attached to a host that is not well is not
// watched, and may come; nor are the other hosts, which may look sick or no longer.
func TestUnwellIsLookedAtAgain(t *testing.T) {
	s := newFixture(t)
	failsOver := func(how storagev1alpha1.FailoverMode) {
		kubetest.Change(s.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) { v.Spec.Replication.Failover = how })
	}
	failsOver(storagev1alpha1.FailoverOff)
	if again := s.looksAgain(); again != 0 {
		t.Errorf("of a host that is well, looks again after %s", again)
	}
	s.live(40, "dpu-a", "b", "dpu-b")
	if again := s.looksAgain(); again <= 0 {
		t.Error("a host that is silent, and has no volume, is not looked at again")
	}
	failsOver(storagev1alpha1.FailoverFence)
	s.seenDead("a")
	s.live(5, "dpu-a", "b", "dpu-b")
	if again := s.looksAgain(); again <= 0 || again > retryAfter {
		t.Errorf("looks again after %s while a failover is under way", again)
	}
}

// TestSlimRevoked: what the cache leaves of an SVVolumeAttachment wakes the host of its
// DPU as the whole does, once it is deleted.
func TestSlimRevoked(t *testing.T) {
	s := newFixture(t)
	at := metav1.NewTime(time.Unix(1000, 0))
	whole := &storagev1alpha1.SVVolumeAttachment{ObjectMeta: kubetest.DPUObject("a-vol")}
	whole.UID, whole.Annotations, whole.Finalizers = "u", map[string]string{storagev1alpha1.AnnotationNodeID: "n"}, []string{"external-attacher/x"}
	whole.Spec.NodeName, whole.Spec.Attacher = "dpu-a", "x"
	for name, deleted := range map[string]*metav1.Time{"stands": nil, "deleted": &at} {
		whole.DeletionTimestamp = deleted
		got, err := SlimRevoked(whole.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		slim := got.(*storagev1alpha1.SVVolumeAttachment)
		if slim.Annotations != nil || slim.Finalizers != nil || slim.Spec.Attacher != "" || slim.UID != whole.UID || slim.Name != whole.Name {
			t.Errorf("%s: left of it is %+v", name, slim)
		}
		want, woken := s.f.ofRevoked(t.Context(), whole), s.f.ofRevoked(t.Context(), slim)
		if d := cmp.Diff(want, woken); d != "" || (len(woken) > 0) != (deleted != nil) {
			t.Errorf("%s: wakes %v (-want +got):\n%s", name, woken, d)
		}
	}
	if other, err := SlimRevoked(&moorv1alpha1.WriterClaim{}); err != nil || other.(*moorv1alpha1.WriterClaim) == nil {
		t.Errorf("another kind became %v, %v", other, err)
	}
}
