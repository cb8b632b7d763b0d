package hostcluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
)

// TestEachVolumeInOneDPUCluster: each volume is made in one of the DPU clusters, which it has on record, the
// volumes spread over both, and no controller touches what is another's.
func TestEachVolumeInOneDPUCluster(t *testing.T) {
	s := openSeveral(t)
	for i := range 30 {
		s.host.Add(s.young(fmt.Sprintf("v%d", i)))
	}
	s.settle()
	counts := map[string]int{}
	for name, where := range s.volumes() {
		counts[where]++
		if where != "dpf/east made in east" && where != "dpf/west made in west" {
			t.Errorf("volume %s: %s", name, where)
		}
	}
	if len(counts) != 2 || counts["dpf/east made in east"] < 8 || counts["dpf/west made in west"] < 8 {
		t.Errorf("30 volumes are spread so: %v", counts)
	}
}

// TestOneDPUClusterIsAway: the controller of one is away, as where its API server is: volumes that may be made in
// another one are, after a while; what is in the one that is away waits, and nothing takes it for gone.
func TestOneDPUClusterIsAway(t *testing.T) {
	s := openSeveral(t)
	s.host.Add(only("old", "dpf/west"), kubetest.DPUVolumeAttachment("old", "b"))
	s.settle()
	s.away[s.west] = true
	for i := range 10 {
		s.host.Add(s.young(fmt.Sprintf("v%d", i)))
	}
	s.host.Add(only("waits", "dpf/west"), only("unwanted", "dpf/west"))
	s.settle()
	s.host.Remove(kubetest.DPUVolume("unwanted")) // of which nothing was made anywhere
	s.host.Remove(kubetest.DPUVolumeAttachment("old", "b"), kubetest.DPUVolume("old"))
	s.settle()
	left := 0
	for _, where := range s.volumes() {
		if where == "-" {
			left++
		}
	}
	if left < 3 {
		t.Errorf("%d volumes are left to the one that is away; it is the first choice of some", left)
	}
	s.east.Step(5 * time.Second)
	s.settle()
	if s.host.Has(&storagev1alpha1.DPUVolume{}, "unwanted") {
		t.Error("a volume that is in no DPU cluster waits for one that is away to let it go")
	}
	for name, where := range s.volumes() {
		want := map[string]string{"old": "dpf/west made in west", "waits": "-"}[name]
		if want == "" {
			want = "dpf/east made in east"
		}
		if where != want {
			t.Errorf("volume %s: %s, want %s", name, where, want)
		}
	}
	if a := s.attachment("b-old"); len(a.Finalizers) != 1 || a.Status.DPUCluster != "dpf/west" {
		t.Errorf("what is attached in the DPU cluster that is away: finalizers %v, DPU cluster %q", a.Finalizers, a.Status.DPUCluster)
	}
	said := s.said("waits", storagev1alpha1.ConditionDPUVolumeReconciled)
	if want := "waiting for a DPU cluster in which DPUStoragePolicy policy is Valid"; !strings.Contains(said, want) {
		t.Errorf("a volume for the one that is away says %s, want %q", said, want)
	}
	delete(s.away, s.west)
	s.settle()
	for name, where := range s.volumes() {
		if name == "old" || name == "waits" && where != "dpf/west made in west" {
			t.Errorf("it is back; volume %s: %s", name, where)
		}
	}
}

// TestAttachedInItsDPUCluster: an attachment is carried out where its volume is, has that on record before anything is
// made for it, and is removed by the controller of that DPU cluster alone, also when its volume is lost. To a host
// of another one a volume is not attached, and that is said.
func TestAttachedInItsDPUCluster(t *testing.T) {
	s := openSeveral(t)
	s.host.Add(only("vol", "dpf/east"), kubetest.DPUVolumeAttachment("vol", "a"), kubetest.DPUVolumeAttachment("vol", "b"))
	s.east.AfterWrite(func(_ string, o client.Object) {
		if _, made := o.(*storagev1alpha1.VolumeAttachment); made && s.attachment(o.GetName()).Status.DPUCluster != "dpf/east" {
			t.Errorf("VolumeAttachment %s is there before it is on record where", o.GetName())
		}
	})
	s.settle()
	a, b := s.attachment("a-vol"), s.attachment("b-vol")
	if a.Status.DPUAttached == nil || !*a.Status.DPUAttached || a.Status.Epoch != 1 || a.Status.DPUCluster != "dpf/east" {
		t.Errorf("on the host of the volume's DPU cluster: %+v", a.Status)
	}
	if want := "no DPUStorageNode says that node b has a DPU in DPU cluster dpf/east"; !strings.Contains(b.Status.Message, want) {
		t.Errorf("on the host of another: %q, want %q", b.Status.Message, want)
	}
	if s.west.DPU.Has(&storagev1alpha1.VolumeAttachment{}, "b-vol") || s.west.DPU.Has(&moorv1alpha1.WriterClaim{}, "vol") {
		t.Error("something was made in the other DPU cluster")
	}
	// The volume is lost by force; the attachment still knows where it is.
	kubetest.Change(s.host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) { v.Finalizers = nil })
	s.host.Remove(kubetest.DPUVolume("vol"), kubetest.DPUVolumeAttachment("vol", "a"))
	s.away[s.east] = true
	s.settle()
	if a := s.attachment("a-vol"); len(a.Finalizers) == 0 {
		t.Error("the controller of another DPU cluster let the attachment go")
	}
	delete(s.away, s.east)
	s.settle()
	if s.host.Has(&storagev1alpha1.DPUVolumeAttachment{}, "a-vol") || s.east.DPU.Has(&storagev1alpha1.VolumeAttachment{}, "a-vol") {
		t.Error("its own controller did not remove it")
	}
}

// TestRecordIsLost: a volume that has lost its status is made in no other DPU cluster, where it would be empty: the
// controller that has it says so again, and while that one is away the volume waits.
func TestRecordIsLost(t *testing.T) {
	for name, lost := range map[string]*storagev1alpha1.DPUVolumeState{
		"no state":            nil,
		"written over":        {DPUCluster: &storagev1alpha1.ObjectReference{Namespace: "dpf", Name: "east"}},
		"a state, no cluster": {SelectedDPUStorageVendorName: "vendor"},
	} {
		t.Run(name, func(t *testing.T) {
			s := openSeveral(t)
			s.host.Add(only("vol", "dpf/west"))
			s.settle()
			s.away[s.west] = true
			s.west.DPU.Remove(kubetest.StorageClass("vendor")) // so that it would not take it anew
			kubetest.Change(s.host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) {
				v.Status = storagev1alpha1.DPUVolumeStatus{State: lost}
				v.Spec.AccessibleFrom = nil
			})
			s.settle()
			s.east.Step(time.Hour)
			s.settle()
			if s.east.DPU.Has(&storagev1alpha1.Volume{}, "vol") {
				t.Fatal("it was made anew in another DPU cluster")
			}
			if got := s.volumes()["vol"]; got != "- made in west" && name != "written over" {
				t.Errorf("another DPU cluster put itself on record: %s", got)
			}
			delete(s.away, s.west)
			s.settle()
			if got := s.volumes()["vol"]; got != "dpf/west made in west" {
				t.Errorf("its controller is back: %s", got)
			}
		})
	}
}

// TestFromOneToSeveral: what was made while there was one DPU cluster, under whatever name, is taken up by the controller that
// has it, and by no other.
func TestFromOneToSeveral(t *testing.T) {
	s := openSeveral(t)
	s.host.Add(only("vol", "dpf/west"), kubetest.DPUVolumeAttachment("vol", "b"))
	s.settle()
	kubetest.Change(s.host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) {
		v.Finalizers = []string{storagev1alpha1.FinalizerDPUVolume}
		v.Status.State.DPUCluster = &storagev1alpha1.ObjectReference{Namespace: kubetest.DPUNamespace, Name: "as-it-was-called"}
	})
	kubetest.Change(s.host, kubetest.DPUVolumeAttachment("vol", "b"), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Status.DPUCluster = "" })
	s.away[s.west] = true
	s.settle()
	if got := s.volumes()["vol"]; got != kubetest.DPUNamespace+"/as-it-was-called made in west" {
		t.Errorf("before its controller has looked: %s", got)
	}
	if said := s.said("vol", storagev1alpha1.ConditionReady); !strings.HasPrefix(said, "Ready=False/Pending: not ready: DPUVolumeReconciled: it was made while there was one DPU cluster, as-it-was-called, and none") {
		t.Errorf("before its controller has looked it says %s", said)
	}
	delete(s.away, s.west)
	s.settle()
	if said := s.said("vol", storagev1alpha1.ConditionReady); said != "Ready=True/Success" {
		t.Errorf("its controller has looked: %s", said)
	}
	if got, a := s.volumes()["vol"], s.attachment("b-vol"); got != "dpf/west made in west" || a.Status.DPUCluster != "dpf/west" || a.Status.Epoch != 1 {
		t.Errorf("the volume: %s; the attachment: %+v", got, a.Status)
	}
	s.host.Remove(kubetest.DPUVolumeAttachment("vol", "b"), kubetest.DPUVolume("vol"))
	s.settle()
	if len(s.volumes()) > 0 {
		t.Error("it does not go")
	}
}

// TestPlaces: a place that does not say in which DPU cluster it is, is in that of the DPU which it names.
func TestPlaces(t *testing.T) {
	s := openSeveral(t)
	for name, place := range map[string]map[string]string{
		"dpu":     {moorv1alpha1.TopologyDPU: "dpu-b"},
		"cluster": {moorv1alpha1.TopologyDPUCluster: "dpf.west"},
		"none":    {moorv1alpha1.TopologyDPU: "dpu-that-is-not-there"},
	} {
		v := asked(name)
		v.Spec.AccessibleFrom = []map[string]string{place}
		s.host.Add(v)
	}
	s.settle()
	if d := cmp.Diff(map[string]string{"dpu": "dpf/west made in west", "cluster": "dpf/west made in west", "none": "-"}, s.volumes()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	west := s.west.runs[2].r
	req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(asked("none"))}
	if got, err := west.Reconcile(t.Context(), req); err != nil || got.RequeueAfter != 30*time.Second {
		t.Errorf("one that none can make is looked at again: %+v, %v", got, err)
	}
}

// TestSharedStatus: vendors and policies are in every DPU cluster. Each controller says how it is in its own, all of it is
// summed up, and each lets go by itself.
func TestSharedStatus(t *testing.T) {
	s := openSeveral(t)
	s.west.DPU.Remove(kubetest.StorageClass("vendor"))
	s.settle()
	said := func() []string {
		v, p := kubetest.DPUStorageVendor("vendor"), kubetest.DPUStoragePolicy("policy")
		v, _ = kubetest.Read(s.host, v)
		p, _ = kubetest.Read(s.host, p)
		out := append(kubetest.Conditions(v.Status.Conditions, "Valid", "Ready"), kubetest.Conditions(p.Status.Conditions, "Valid", "Ready")...)
		return append(out, fmt.Sprint(v.Status.DPUClusters))
	}
	if d := cmp.Diff([]string{"Valid=True/Success", "Ready=True/Success", "Valid=True/Success", "Ready=True/Success", "[{east dpf}]"}, said()); d != "" {
		t.Errorf("valid in one (-want +got):\n%s", d)
	}
	s.host.Add(kubetest.DPUVolume("vol", corev1.ReadWriteOnce))
	s.settle()
	s.east.Step(time.Hour)
	s.settle()
	if got := s.volumes()["vol"]; got != "dpf/east made in east" {
		t.Errorf("a volume of the policy: %s", got)
	}
	s.east.DPU.Remove(kubetest.StorageClass("vendor"))
	s.settle()
	if got := said(); !strings.Contains(got[0], "DPU cluster dpf.east: StorageClass vendor-class does not exist") || !strings.Contains(got[0], "; DPU cluster dpf.west: StorageClass vendor-class") || got[4] != "[]" {
		t.Errorf("valid in none: %v", got)
	}
	s.host.Add(asked("early"))
	s.settle()
	s.east.Step(time.Hour)
	s.settle()
	if got := s.volumes()["early"]; got != "-" {
		t.Errorf("a volume of a policy that is valid in none: %s", got)
	}
	s.host.Remove(asked("early"))
	s.west.DPU.Add(kubetest.StorageClass("vendor"))
	s.settle()
	if got := said(); got[4] != "[{west dpf}]" {
		t.Errorf("valid in the other: %v", got)
	}
	s.host.Remove(kubetest.DPUVolume("vol"))
	s.settle()
	s.away[s.west] = true
	s.host.Remove(kubetest.DPUStoragePolicy("policy"), kubetest.DPUStorageVendor("vendor"))
	s.settle()
	if s.east.DPU.Has(&storagev1alpha1.StoragePolicy{}, "policy") || !s.host.Has(&storagev1alpha1.DPUStoragePolicy{}, "policy") || !s.host.Has(&storagev1alpha1.DPUStorageVendor{}, "vendor") {
		t.Error("one is away: the other has to remove its own copy, and has to leave the objects for it")
	}
	delete(s.away, s.west)
	s.settle()
	if s.host.Has(&storagev1alpha1.DPUStorageVendor{}, "vendor") || s.west.DPU.Has(&storagev1alpha1.StorageVendor{}, "vendor") || s.west.DPU.Has(&storagev1alpha1.StoragePolicy{}, "policy") {
		t.Error("all are back: something is left")
	}
}

// TestOneOfTwoIsOnRecord: two controllers that take a volume at once do not both: the cache of the second is of before the first.
func TestOneOfTwoIsOnRecord(t *testing.T) {
	s := openSeveral(t)
	s.host.Add(kubetest.DPUVolume("vol", corev1.ReadWriteOnce))
	before, _ := kubetest.Read(s.host, kubetest.DPUVolume("vol"))
	s.east.round()
	s.east.CacheShows(before)
	s.west.round()
	s.west.round()
	s.east.CacheIsCurrent()
	s.settle()
	if got := s.volumes()["vol"]; got != "dpf/east made in east" {
		t.Errorf("the volume: %s", got)
	}
}

// TestDoesNotAnswer: a DPU cluster whose API server has just gone away, so that the caches of its controller are as they
// were, takes no volume.
func TestDoesNotAnswer(t *testing.T) {
	s := openSeveral(t)
	s.cut[s.west] = true
	for i := range 10 {
		s.host.Add(s.young(fmt.Sprintf("v%d", i)))
	}
	for range 3 {
		s.east.round()
		s.west.round()
	}
	for name, where := range s.volumes() {
		if strings.HasPrefix(where, "dpf/west") {
			t.Errorf("volume %s: %s", name, where)
		}
	}
	s.east.Step(5 * time.Second)
	s.away[s.west] = true
	s.settle()
	for name, where := range s.volumes() {
		if where != "dpf/east made in east" {
			t.Errorf("after a while volume %s: %s", name, where)
		}
	}
}

// TestCrashOfSeveral loses each write of the life of a volume and its attachments in turn, each second one with effect: it
// is made in the one DPU cluster, and nothing is left behind in either.
func TestCrashOfSeveral(t *testing.T) {
	live := func(t *testing.T, k int, late bool) (writes, lost int) {
		s := openSeveral(t)
		begun := s.east.Writes()
		s.east.LoseWrite(k, late)
		s.host.Add(only("vol", "dpf/east"))
		s.settle()
		if got := s.volumes()["vol"]; got != "dpf/east made in east" {
			t.Fatalf("write %d lost: the volume: %s", k, got)
		}
		s.host.Add(kubetest.DPUVolumeAttachment("vol", "a"))
		s.settle()
		if a := s.attachment("a-vol"); a.Status.Epoch != 1 || a.Status.DPUCluster != "dpf/east" {
			t.Fatalf("write %d lost: the attachment: %+v", k, a.Status)
		}
		s.host.Remove(kubetest.DPUVolumeAttachment("vol", "a"), kubetest.DPUVolume("vol"), kubetest.DPUStoragePolicy("policy"), kubetest.DPUStorageVendor("vendor"))
		s.settle()
		if left := append(s.east.picture(), s.west.picture()...); len(left) > 0 {
			t.Fatalf("write %d lost: left behind:\n%v", k, left)
		}
		return s.east.Writes() - begun, s.east.lost + s.west.lost
	}
	writes, _ := live(t, 1e9, false)
	if writes < 20 {
		t.Fatalf("a life took %d writes only: the test would lose too few", writes)
	}
	for k := 1; k <= writes; k++ {
		t.Run(fmt.Sprintf("write=%d", k), func(t *testing.T) {
			t.Parallel()
			if _, lost := live(t, k, k%2 == 0); lost != 1 {
				t.Errorf("%d writes were lost, want 1", lost)
			}
		})
	}
}

// TestWhere: what a DPU cluster is called in statuses, labels and finalizers, and what places mean to it.
func TestWhere(t *testing.T) {
	for _, c := range []struct{ cluster, finalizer, condition string }{
		{"", "own", "Valid"},
		{"dpf/east", "storage.moor.dev/dpu-cluster.dpf.east", "Valid.dpf.east"},
	} {
		in := hostcluster.Clusters{DPUCluster: c.cluster}
		if finalizer, condition := in.Finalizer("own"), in.In("Valid"); finalizer != c.finalizer || condition != c.condition {
			t.Errorf("%q: %s, %s", c.cluster, finalizer, condition)
		}
	}
	tooLong := hostcluster.Clusters{DPUCluster: strings.Repeat("n", 40) + "/" + strings.Repeat("n", 40)}
	if words := validation.IsQualifiedName(tooLong.Finalizer("own")); len(words) > 0 {
		t.Errorf("a long name is no finalizer: %v", words)
	}
	east := hostcluster.Clusters{DPUCluster: "dpf/east"}
	here, there := "dpf.east", "dpf.west"
	type places = []map[string]string
	key := moorv1alpha1.TopologyDPUCluster
	if d := cmp.Diff(places{{"rack": "1"}, {"rack": "3"}}, east.Wanted(places{{"rack": "1", key: here}, {"rack": "2", key: there}, {"rack": "3"}})); d != "" {
		t.Errorf("wanted (-want +got):\n%s", d)
	}
	if d := cmp.Diff(places{{key: here}}, east.Places(nil)); d != "" {
		t.Errorf("reached from everywhere there (-want +got):\n%s", d)
	}
	if d := cmp.Diff(places{{"rack": "1", key: here}}, east.Places(places{{"rack": "1"}})); d != "" {
		t.Errorf("reached from a rack there (-want +got):\n%s", d)
	}
	one := hostcluster.Clusters{}
	if d := cmp.Diff(places{{"rack": "1"}}, one.Places(one.Wanted(places{{"rack": "1"}}))); d != "" || one.Places(nil) != nil {
		t.Errorf("of one DPU cluster (-want +got):\n%s", d)
	}
}
