package snapshot

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	groupsnapshotv1beta2 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta2"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// newGroup is a fixture with the group g of the volumes v and w: the snapshots g-0
// and g-1.
func newGroup(t *testing.T) *fixture {
	t.Helper()
	m := newFixture(t)
	class := &groupsnapshotv1beta2.VolumeGroupSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "a-groups"}, Driver: "a.csi", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete}
	m.Add(available("w"), class, inGroup("g-0", "v"), inGroup("g-1", "w"))
	for _, name := range []string{"v", "w"} {
		m.Add(&corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject(name + "-pvc")})
	}
	return m
}

func inGroup(name, volume string) *moorv1alpha1.StorageSnapshot {
	s := wanted(name, volume)
	s.Spec.Group = &moorv1alpha1.SnapshotGroup{Name: "g", VolumeNames: []string{"v", "w"}}
	return s
}

func (m *fixture) passes(names ...string) {
	m.t.Helper()
	for _, name := range names {
		if _, err := m.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: kubetest.DPUNamespace, Name: name}}); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *fixture) of(name string) *moorv1alpha1.StorageSnapshot {
	m.t.Helper()
	s := &moorv1alpha1.StorageSnapshot{}
	m.Get(s, name)
	return s
}

func (m *fixture) group() *groupsnapshotv1beta2.VolumeGroupSnapshot {
	m.t.Helper()
	g := &groupsnapshotv1beta2.VolumeGroupSnapshot{}
	m.Get(g, "g")
	return g
}

// marked are the claims that the group finds.
func (m *fixture) marked() (out []string) {
	m.t.Helper()
	for _, name := range []string{"v-pvc", "w-pvc"} {
		claim := &corev1.PersistentVolumeClaim{}
		m.Get(claim, name)
		for key := range claim.Labels {
			out = append(out, name+" "+strings.Split(key, "/")[0])
		}
	}
	return out
}

// keeps plays snapshot-controller and the vendor: it makes the VolumeSnapshots of
// the claims.
func (m *fixture) keeps(claims ...string) {
	m.t.Helper()
	g := m.group()
	for _, claim := range claims {
		status := taken(true)
		m.Add(&snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: kubetest.DPUNamespace, Name: "snapshot-of-" + claim,
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "groupsnapshot.storage.k8s.io/v1", Kind: "VolumeGroupSnapshot", Name: g.Name, UID: g.UID}},
			},
			Spec:   snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}},
			Status: &status,
		})
	}
}

func (m *fixture) wantMessageOf(name, message string) {
	m.t.Helper()
	if got := m.of(name).Status.Message; !strings.Contains(got, message) || message == "" && got != "" {
		m.t.Errorf("%s says %q, want %q in it", name, got, message)
	}
}

func TestAGroupIsAskedForOnceForAllItsVolumes(t *testing.T) {
	m := newGroup(t)
	m.passes("g-1", "g-0", "g-1")
	g := m.group()
	if *g.Spec.VolumeGroupSnapshotClassName != "a-groups" {
		t.Errorf("%+v", g.Spec)
	}
	if got := m.marked(); !slices.Equal(got, []string{"v-pvc group.storage.moor.dev", "w-pvc group.storage.moor.dev"}) {
		t.Errorf("claims of the group: %v", got)
	}
	if m.Has(&snapshotv1.VolumeSnapshot{}, "g-0") {
		t.Error("a snapshot of the group was asked for alone")
	}
	m.keeps("v-pvc", "w-pvc")
	m.passes("g-0", "g-1")
	for name, made := range map[string]string{"g-0": "snapshot-of-v-pvc", "g-1": "snapshot-of-w-pvc"} {
		s := m.of(name)
		if s.Spec.Taken == nil || !s.Status.ReadyToUse || s.Status.VolumeSnapshotName != made || s.Status.Message != "" {
			t.Errorf("%s: %+v %+v", name, s.Spec, s.Status)
		}
	}
	before := m.Writes()
	m.passes("g-0", "g-1")
	if m.Writes() != before {
		t.Error("a pass over a group that is ready writes")
	}
}

func TestWhatAGroupWaitsFor(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*fixture)
		message string
	}{
		"a volume is gone": {
			func(m *fixture) { m.Remove(available("w")) },
			"Volume w of the group is gone, and nothing was kept of it",
		},
		"a volume is not made yet": {
			func(m *fixture) {
				kubetest.Change(m.Cluster, &storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject("w")}, func(v *storagev1alpha1.Volume) { v.Status.State, v.Status.Message = "", "no room" })
			},
			"waiting for Volume w of the group to become Available: no room",
		},
		"two drivers": {
			func(m *fixture) {
				kubetest.Change(m.Cluster, &storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject("w")}, func(v *storagev1alpha1.Volume) { v.Spec.Volume.CSIReference.CSIDriverName = "b.csi" })
			},
			"Volume w is of driver b.csi, others of the group of a.csi",
		},
		"a claim is gone": {
			func(m *fixture) { m.Remove(&corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("w-pvc")}) },
			"PersistentVolumeClaim w-pvc is gone",
		},
		"no class": {
			func(m *fixture) {
				m.Remove(&groupsnapshotv1beta2.VolumeGroupSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "a-groups"}})
			},
			"the DPU cluster has no VolumeGroupSnapshotClass of driver a.csi",
		},
		"no kinds": {
			func(m *fixture) {
				mapper := meta.NewDefaultRESTMapper(nil)
				for _, kind := range snapshotKinds {
					mapper.Add(kind, meta.RESTScopeNamespace)
				}
				m.r.Mapper = mapper
			},
			"the DPU cluster has no kind VolumeGroupSnapshot (groupsnapshot.storage.k8s.io/v1beta2)",
		},
		"a foreign group": {
			func(m *fixture) {
				m.Add(&groupsnapshotv1beta2.VolumeGroupSnapshot{ObjectMeta: kubetest.DPUObject("g"), Spec: groupsnapshotv1beta2.VolumeGroupSnapshotSpec{
					Source: groupsnapshotv1beta2.VolumeGroupSnapshotSource{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}},
				}})
			},
			"VolumeGroupSnapshot g exists already and does not belong to this group",
		},
		"a sibling that says otherwise": {
			func(m *fixture) {
				kubetest.Change(m.Cluster, &moorv1alpha1.StorageSnapshot{ObjectMeta: kubetest.DPUObject("g-1")}, func(s *moorv1alpha1.StorageSnapshot) { s.Spec.Group.VolumeNames = []string{"w"} })
			},
			"StorageSnapshot g-1 says that group g has other volumes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newGroup(t)
			c.change(m)
			m.passes("g-0")
			m.wantMessageOf("g-0", c.message)
			if s := m.of("g-0"); s.Spec.Taken != nil || s.Status.ReadyToUse {
				t.Error("taken")
			}
		})
	}
}

// A group is of one instant: once anything of it was taken it is never taken
// again, by none of its snapshots.
func TestAGroupIsNeverTakenTwice(t *testing.T) {
	m := newGroup(t)
	m.passes("g-0", "g-1")
	m.keeps("v-pvc", "w-pvc")
	m.passes("g-0") // and not g-1
	m.Remove(m.group())
	for _, name := range []string{"snapshot-of-v-pvc", "snapshot-of-w-pvc"} {
		m.Remove(&snapshotv1.VolumeSnapshot{ObjectMeta: kubetest.DPUObject(name)})
	}
	m.passes("g-0", "g-1")
	for _, name := range []string{"g-0", "g-1"} {
		m.wantMessageOf(name, "the vendor's VolumeGroupSnapshot g is gone, and perhaps the data of all its snapshots with it")
	}
	if m.Has(&groupsnapshotv1beta2.VolumeGroupSnapshot{}, "g") {
		t.Error("taken again")
	}
}

func TestAGroupWithoutAMember(t *testing.T) {
	m := newGroup(t)
	m.passes("g-0", "g-1")
	m.keeps("v-pvc")
	kubetest.Change(m.Cluster, &groupsnapshotv1beta2.VolumeGroupSnapshot{ObjectMeta: kubetest.DPUObject("g")}, func(g *groupsnapshotv1beta2.VolumeGroupSnapshot) {
		g.Status = &groupsnapshotv1beta2.VolumeGroupSnapshotStatus{Error: &snapshotv1.VolumeSnapshotError{Message: ptr.To("the array is busy")}}
	})
	m.Clock.SetTime(m.Clock.Now().Add(time.Hour))
	m.passes("g-1")
	m.wantMessageOf("g-1", "waiting for the vendor's VolumeGroupSnapshot g: the array is busy")
	kubetest.Change(m.Cluster, &groupsnapshotv1beta2.VolumeGroupSnapshot{ObjectMeta: kubetest.DPUObject("g")}, func(g *groupsnapshotv1beta2.VolumeGroupSnapshot) {
		g.Status = &groupsnapshotv1beta2.VolumeGroupSnapshotStatus{ReadyToUse: ptr.To(true)}
	})
	m.passes("g-1")
	m.wantMessageOf("g-1", "the vendor's group g is ready, and has no VolumeSnapshot of claim w-pvc")
}

// The snapshots of a group go together, the vendor's group with the last wish to
// keep one of them, and nothing of it stays.
func TestAGroupGoesTogether(t *testing.T) {
	m := newGroup(t)
	m.passes("g-0", "g-1")
	m.keeps("v-pvc", "w-pvc")
	m.passes("g-0", "g-1")
	m.Remove(inGroup("g-0", "v"))
	m.passes("g-0")
	m.wantMessageOf("g-0", "StorageSnapshot g-1 of the same group is wanted still")
	kubetest.Change(m.Cluster, &groupsnapshotv1beta2.VolumeGroupSnapshot{ObjectMeta: kubetest.DPUObject("g")}, func(g *groupsnapshotv1beta2.VolumeGroupSnapshot) {
		g.Finalizers = []string{"groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-bound-protection"}
	})
	m.Remove(inGroup("g-1", "w"))
	m.passes("g-1", "g-0")
	m.wantMessageOf("g-0", "waiting for the vendor's VolumeGroupSnapshot g to go")
	if m.group().DeletionTimestamp == nil {
		t.Fatal("the vendor was not asked")
	}
	kubetest.Change(m.Cluster, &groupsnapshotv1beta2.VolumeGroupSnapshot{ObjectMeta: kubetest.DPUObject("g")}, func(g *groupsnapshotv1beta2.VolumeGroupSnapshot) { g.Finalizers = nil })
	m.passes("g-0")
	m.wantMessageOf("g-0", "waiting for the vendor's VolumeSnapshot snapshot-of-v-pvc to go")
	for _, name := range []string{"snapshot-of-v-pvc", "snapshot-of-w-pvc"} {
		m.Remove(&snapshotv1.VolumeSnapshot{ObjectMeta: kubetest.DPUObject(name)})
	}
	m.passes("g-0", "g-1")
	if m.Has(&moorv1alpha1.StorageSnapshot{}, "g-0") || m.Has(&moorv1alpha1.StorageSnapshot{}, "g-1") || len(m.marked()) != 0 {
		t.Errorf("left behind; marks: %v", m.marked())
	}
}

func TestEachWriteOfAGroupMayFail(t *testing.T) {
	for n := 1; n < 12; n++ {
		m := newGroup(t)
		m.LoseWrite(n, false)
		for range 3 {
			for _, name := range []string{"g-0", "g-1"} {
				_, _ = m.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: kubetest.DPUNamespace, Name: name}})
			}
		}
		if len(m.marked()) != 2 || !isGroupOf(m.of("g-0"), m.group()) {
			t.Errorf("after write %d failed: marks %v", n, m.marked())
		}
	}
}
