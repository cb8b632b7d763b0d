package snapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// instant is what the vendor's snapshots are of.
var instant = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

// fixture is a reconciler over a cluster in memory.
type fixture struct {
	*kubetest.Cluster
	t *testing.T
	r *Reconciler
}

// newFixture has an available volume v of vendor a, a VolumeSnapshotClass of its
// driver, and a StorageSnapshot s of v.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	c := kubetest.NewDPU(t)
	c.Clock.SetTime(time.Now()) // the fake client stamps deletions by the real time
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range append(slices.Clone(snapshotKinds), groupKinds...) {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	c.Add(available("v"), class("a-snapshots", "a.csi", false), class("b-snapshots", "b.csi", false), wanted("s", "v"))
	return &fixture{Cluster: c, t: t, r: &Reconciler{DPU: c.Cluster, Mapper: mapper, Clock: c.Clock}}
}

func available(name string) *storagev1alpha1.Volume {
	v := kubetest.Volume(name, "gold")
	v.Spec.Volume = storagev1alpha1.VolumeSource{StorageVendorName: "a", CSIReference: storagev1alpha1.CSIReference{
		CSIDriverName: "a.csi", PVCRef: &storagev1alpha1.ObjectRef{Name: name + "-pvc"},
	}}
	v.Status.State = storagev1alpha1.VolumeAvailable
	return v
}

func class(name, driver string, isTheDefault bool) *snapshotv1.VolumeSnapshotClass {
	c := &snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Driver: driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete}
	if isTheDefault {
		c.Annotations = map[string]string{isDefault: "true"}
	}
	return c
}

func wanted(name, volume string) *moorv1alpha1.StorageSnapshot {
	return &moorv1alpha1.StorageSnapshot{ObjectMeta: kubetest.DPUObject(name), Spec: moorv1alpha1.StorageSnapshotSpec{VolumeName: volume}}
}

func (m *fixture) pass() ctrl.Result {
	m.t.Helper()
	result, err := m.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: kubetest.DPUNamespace, Name: "s"}})
	if err != nil {
		m.t.Fatal(err)
	}
	return result
}

func (m *fixture) snapshot() *moorv1alpha1.StorageSnapshot {
	m.t.Helper()
	s := &moorv1alpha1.StorageSnapshot{}
	m.Get(s, "s")
	return s
}

// vendor plays the vendor: what it says of the VolumeSnapshot.
func (m *fixture) vendor(status snapshotv1.VolumeSnapshotStatus) {
	m.t.Helper()
	kubetest.Change(m.Cluster, &snapshotv1.VolumeSnapshot{ObjectMeta: kubetest.DPUObject("s")}, func(s *snapshotv1.VolumeSnapshot) { s.Status = &status })
}

func taken(ready bool) snapshotv1.VolumeSnapshotStatus {
	return snapshotv1.VolumeSnapshotStatus{CreationTime: &instant, RestoreSize: ptr.To(resource.MustParse("1Gi")), ReadyToUse: &ready}
}

func (m *fixture) wantMessage(message string) {
	m.t.Helper()
	if got := m.snapshot().Status; !strings.Contains(got.Message, message) || message == "" && got.Message != "" {
		m.t.Errorf("message %q, want %q in it", got.Message, message)
	}
}

func TestTheVendorIsAskedForWhatItsVolumeHolds(t *testing.T) {
	m := newFixture(t)
	m.pass()
	made := &snapshotv1.VolumeSnapshot{}
	m.Get(made, "s")
	if *made.Spec.Source.PersistentVolumeClaimName != "v-pvc" || *made.Spec.VolumeSnapshotClassName != "a-snapshots" || !metav1.IsControlledBy(made, m.snapshot()) {
		t.Errorf("%+v, owners %v", made.Spec, made.OwnerReferences)
	}
	want := &moorv1alpha1.SnapshotOrigin{
		StorageVendorName: "a", CSIDriverName: "a.csi", VolumeSnapshotClassName: "a-snapshots", ClaimName: "v-pvc", VolumeMode: corev1.PersistentVolumeBlock,
	}
	if diff := cmp.Diff(want, m.snapshot().Spec.Origin); diff != "" {
		t.Errorf("origin (-want +got):\n%s", diff)
	}
	m.vendor(taken(true))
	m.pass()
	s := m.snapshot()
	if s.Spec.Taken == nil || !s.Spec.Taken.Time.Equal(&instant) || !s.Status.ReadyToUse || s.Status.Message != "" || s.Status.VolumeSnapshotName != "s" {
		t.Errorf("%+v %+v", s.Spec, s.Status)
	}
	before := m.Writes()
	m.pass()
	if m.Writes() != before {
		t.Error("a pass over a snapshot that is ready writes")
	}
}

func TestWhatIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*fixture)
		message string
	}{
		"no volume": {
			func(m *fixture) { m.Remove(available("v")) },
			"Volume v is gone, and nothing was kept of it: delete the snapshot",
		},
		"the volume is not made yet": {
			func(m *fixture) {
				kubetest.Change(m.Cluster, &storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject("v")}, func(v *storagev1alpha1.Volume) {
					v.Status.State, v.Status.Message = storagev1alpha1.VolumeInProgress, "the array is full"
				})
			},
			"waiting for Volume v to become Available: the array is full",
		},
		"no class": {
			func(m *fixture) { m.Remove(class("a-snapshots", "a.csi", false)) },
			"the DPU cluster has no VolumeSnapshotClass of driver a.csi",
		},
		"two classes": {
			func(m *fixture) { m.Add(class("a-more", "a.csi", false)) },
			"driver a.csi has the VolumeSnapshotClasses a-more, a-snapshots: mark exactly one",
		},
		"a foreign VolumeSnapshot": {
			func(m *fixture) { m.Add(&snapshotv1.VolumeSnapshot{ObjectMeta: kubetest.DPUObject("s")}) },
			"VolumeSnapshot s exists already and does not belong to this snapshot",
		},
		"no kinds": {
			func(m *fixture) { m.r.Mapper = meta.NewDefaultRESTMapper([]schema.GroupVersion{}) },
			"the DPU cluster has no kind VolumeSnapshot (snapshot.storage.k8s.io)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFixture(t)
			c.change(m)
			result := m.pass()
			m.wantMessage(c.message)
			if again := name == "no kinds"; (result.RequeueAfter == retryAfter) != again {
				t.Errorf("looked at again after %v", result.RequeueAfter)
			}
			if m.snapshot().Status.ReadyToUse {
				t.Error("ready")
			}
		})
	}
}

func TestTheVendorsWordsClimb(t *testing.T) {
	m := newFixture(t)
	m.pass()
	m.vendor(snapshotv1.VolumeSnapshotStatus{Error: &snapshotv1.VolumeSnapshotError{Message: ptr.To("no room left")}})
	if after := m.pass().RequeueAfter; after <= 0 || after > kube.StatusGrace {
		t.Errorf("looks again after %v", after)
	}
	m.Clock.SetTime(m.Clock.Now().Add(kube.StatusGrace))
	m.pass()
	m.wantMessage("waiting for the vendor's VolumeSnapshot s: no room left")
	m.vendor(taken(false))
	m.pass()
	m.wantMessage("waiting for the vendor to make the snapshot ready")
	if s := m.snapshot(); s.Spec.Taken == nil || s.Status.ReadyToUse {
		t.Errorf("%+v %+v", s.Spec, s.Status)
	}
}

// A snapshot is of one instant: what was taken once is never taken again.
func TestNeverTakenTwice(t *testing.T) {
	m := newFixture(t)
	m.pass()
	m.vendor(taken(true))
	m.pass()
	m.Remove(&snapshotv1.VolumeSnapshot{ObjectMeta: kubetest.DPUObject("s")})
	m.pass()
	m.wantMessage("the vendor's VolumeSnapshot s is gone, and perhaps the data with it")
	if m.Has(&snapshotv1.VolumeSnapshot{}, "s") || m.snapshot().Status.ReadyToUse {
		t.Error("taken again, or still ready")
	}
	other := taken(true)
	other.CreationTime = ptr.To(metav1.NewTime(instant.Add(time.Hour)))
	mine := desired(m.snapshot())
	mine.Status = &other
	m.Add(mine)
	m.pass()
	m.wantMessage("holds the data of another instant")
}

func TestASnapshotOutlivesItsVolume(t *testing.T) {
	m := newFixture(t)
	m.pass()
	m.Remove(available("v"))
	m.vendor(taken(true))
	m.pass()
	if s := m.snapshot(); !s.Status.ReadyToUse || s.Spec.Taken == nil {
		t.Errorf("%+v %+v", s.Spec, s.Status)
	}
}

func TestDeletionInOrder(t *testing.T) {
	m := newFixture(t)
	m.pass()
	m.vendor(taken(true))
	m.pass()
	kubetest.Change(m.Cluster, &snapshotv1.VolumeSnapshot{ObjectMeta: kubetest.DPUObject("s")}, func(s *snapshotv1.VolumeSnapshot) { s.Finalizers = []string{"snapshot.storage.kubernetes.io/bound"} })
	m.Remove(wanted("s", "v"))
	m.pass()
	m.wantMessage("waiting for the vendor's VolumeSnapshot s to go")
	made := &snapshotv1.VolumeSnapshot{}
	m.Get(made, "s")
	if made.DeletionTimestamp == nil {
		t.Fatal("the vendor was not asked")
	}
	m.CacheHides(made) // gone in the cache alone is not gone
	m.pass()
	m.snapshot()
	m.CacheIsCurrent()
	kubetest.Change(m.Cluster, made, func(s *snapshotv1.VolumeSnapshot) { s.Finalizers = nil })
	m.pass()
	if m.Has(&moorv1alpha1.StorageSnapshot{}, "s") {
		t.Error("kept after the vendor's snapshot has gone")
	}
}

func TestForeignSnapshotIsLeftAlone(t *testing.T) {
	m := newFixture(t)
	m.Add(&snapshotv1.VolumeSnapshot{ObjectMeta: kubetest.DPUObject("s")})
	m.pass()
	m.Remove(wanted("s", "v"))
	m.pass()
	if !m.Has(&snapshotv1.VolumeSnapshot{}, "s") || m.Has(&moorv1alpha1.StorageSnapshot{}, "s") {
		t.Error("a foreign VolumeSnapshot was deleted, or waited for")
	}
}

func TestSelectClass(t *testing.T) {
	for name, c := range map[string]struct {
		classes []*snapshotv1.VolumeSnapshotClass
		want    string
	}{
		"none":             {nil, ""},
		"of others":        {[]*snapshotv1.VolumeSnapshotClass{class("x", "b.csi", true)}, ""},
		"the only one":     {[]*snapshotv1.VolumeSnapshotClass{class("x", "b.csi", true), class("y", "a.csi", false)}, "y"},
		"the default":      {[]*snapshotv1.VolumeSnapshotClass{class("x", "a.csi", false), class("y", "a.csi", true)}, "y"},
		"two, no default":  {[]*snapshotv1.VolumeSnapshotClass{class("x", "a.csi", false), class("y", "a.csi", false)}, ""},
		"two are defaults": {[]*snapshotv1.VolumeSnapshotClass{class("x", "a.csi", true), class("y", "a.csi", true)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var all []candidate
			for _, k := range c.classes {
				all = append(all, candidateOf(k, k.Driver, isDefault))
			}
			got, err := selectClass("VolumeSnapshotClass", isDefault, all, "a.csi")
			if c.want == "" && len(c.classes) > 1 && !strings.Contains(fmt.Sprint(err), isDefault+`: "true"`) {
				t.Errorf("%v: does not say what to mark the class with", err)
			}
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}
