package snapshot

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
)

func user() *moorv1alpha1.DPUVolumeSnapshot {
	return &moorv1alpha1.DPUVolumeSnapshot{ObjectMeta: kubetest.HostObject("snap"), Spec: moorv1alpha1.DPUVolumeSnapshotSpec{DPUVolumeName: "vol"}}
}

func mirror() *moorv1alpha1.StorageSnapshot {
	return &moorv1alpha1.StorageSnapshot{ObjectMeta: kubetest.DPUObject("snap")}
}

func open(t *testing.T) (*kubetest.Clusters, *Reconciler) {
	w := kubetest.New(t)
	return w, &Reconciler{Clusters: hostclustertest.Clusters(w)}
}

// asked, kept and ready are what snap-controller writes, one after the other.
func asked(s *moorv1alpha1.StorageSnapshot) {
	s.Finalizers = []string{moorv1alpha1.FinalizerStorageSnapshot}
	s.Spec.Origin = &moorv1alpha1.SnapshotOrigin{StorageVendorName: "vendor", CSIDriverName: "driver", VolumeSnapshotClassName: "class", ClaimName: "vol-pvc"}
	s.Status.Message = "waiting for the vendor's VolumeSnapshot snap"
}

func kept(s *moorv1alpha1.StorageSnapshot) {
	asked(s)
	s.Spec.Taken = &moorv1alpha1.Taken{Time: metav1.NewTime(time.Unix(1e9, 0)), RestoreSize: resource.MustParse("1Gi")}
	s.Status.Message = "waiting for the vendor to make the snapshot ready"
}

func ready(s *moorv1alpha1.StorageSnapshot) {
	kept(s)
	s.Status.ReadyToUse, s.Status.Message = true, ""
}

func said(s *moorv1alpha1.DPUVolumeSnapshot) []string {
	return kubetest.Conditions(s.Status.Conditions, moorv1alpha1.ConditionDPUVolumeSnapshotReconciled, moorv1alpha1.ConditionTaken, moorv1alpha1.ConditionReadyToUse)
}

func TestStatusClimbs(t *testing.T) {
	const idle, making, finishing = "waiting for snap-controller in the DPU cluster", "waiting for the vendor's VolumeSnapshot snap", "waiting for the vendor to make the snapshot ready"
	for name, c := range map[string]struct {
		there func(*moorv1alpha1.StorageSnapshot)
		ready bool
		want  []string
	}{
		"not looked at": {
			func(*moorv1alpha1.StorageSnapshot) {}, false,
			[]string{"DPUVolumeSnapshotReconciled=True/Success", "Taken=False/Pending: " + idle, "ReadyToUse=False/Pending: " + idle},
		},
		"asked": {asked, false, []string{"DPUVolumeSnapshotReconciled=True/Success", "Taken=False/Pending: " + making, "ReadyToUse=False/Pending: " + making}},
		"taken": {kept, false, []string{"DPUVolumeSnapshotReconciled=True/Success", "Taken=True/Success", "ReadyToUse=False/Pending: " + finishing}},
		"ready": {ready, true, []string{"DPUVolumeSnapshotReconciled=True/Success", "Taken=True/Success", "ReadyToUse=True/Success"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(user())
			w.MustReconcile(r, "snap")
			kubetest.Change(w.DPU, mirror(), c.there)
			w.MustReconcile(r, "snap")
			got, _ := kubetest.Read(w.Host, user())
			if diff := cmp.Diff(c.want, said(got)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			m, _ := kubetest.Read(w.DPU, mirror())
			if diff := cmp.Diff(m.Spec.Taken, got.Status.Taken) + cmp.Diff(m.Spec.Origin, got.Status.Origin); diff != "" || got.Status.ReadyToUse != c.ready {
				t.Errorf("ready %t; (-there +here):\n%s", got.Status.ReadyToUse, diff)
			}
			if m.Spec.VolumeName != "vol" {
				t.Errorf("of volume %q", m.Spec.VolumeName)
			}
			before := w.Writes()
			w.MustReconcile(r, "snap")
			if w.Writes() != before {
				t.Error("a pass that changes nothing writes")
			}
		})
	}
}

// What was taken once and is gone is not asked for again: that would be another
// instant under the same name.
func TestALostSnapshotIsNotTakenAgain(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user())
	w.MustReconcile(r, "snap")
	kubetest.Change(w.DPU, mirror(), ready)
	w.MustReconcile(r, "snap")
	kubetest.Change(w.DPU, mirror(), func(s *moorv1alpha1.StorageSnapshot) { s.Finalizers = nil })
	w.DPU.Remove(mirror())
	w.MustReconcile(r, "snap")
	if _, found := kubetest.Read(w.DPU, mirror()); found {
		t.Error("it was asked for again")
	}
	got, _ := kubetest.Read(w.Host, user())
	const lost = "StorageSnapshot snap in DPU cluster dpu-cluster is gone, and perhaps the data with it: restore it, or delete the snapshot"
	if said := said(got)[0]; said != "DPUVolumeSnapshotReconciled=False/Pending: "+lost || got.Status.ReadyToUse {
		t.Errorf("ready %t, says %q", got.Status.ReadyToUse, said)
	}
}

func TestDeletionInOrder(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user())
	w.MustReconcile(r, "snap")
	kubetest.Change(w.DPU, mirror(), ready)
	w.MustReconcile(r, "snap")
	w.Host.Remove(user())
	w.MustReconcile(r, "snap")
	if m, found := kubetest.Read(w.DPU, mirror()); !found || m.DeletionTimestamp == nil {
		t.Fatalf("found %t: the mirror is not being deleted", found)
	}
	if _, found := kubetest.Read(w.Host, user()); !found {
		t.Fatal("gone before the vendor's snapshot")
	}
	kubetest.Change(w.DPU, mirror(), func(s *moorv1alpha1.StorageSnapshot) { s.Finalizers = nil })
	w.MustReconcile(r, "snap")
	if _, found := kubetest.Read(w.Host, user()); found {
		t.Error("kept after the vendor's snapshot has gone")
	}
}

func TestANamesakesMirrorIsLeftAlone(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user())
	other := mirror()
	other.Labels = map[string]string{"storage.moor.dev/owner-uid": "another"}
	w.DPU.Add(other)
	w.MustReconcile(r, "snap")
	got, _ := kubetest.Read(w.Host, user())
	const first = "a StorageSnapshot snap of an earlier DPUVolumeSnapshot of this name is still in DPU cluster dpu-cluster; it has to go first"
	if said := said(got)[0]; said != "DPUVolumeSnapshotReconciled=False/Pending: "+first {
		t.Errorf("says %q", said)
	}
	w.Host.Remove(user())
	w.MustReconcile(r, "snap")
	if _, found := kubetest.Read(w.DPU, mirror()); !found {
		t.Error("a foreign StorageSnapshot was deleted")
	}
}

// TestGroup: a snapshot of a group is asked for with it, and one whose mirror
// lost the group, to an older schema, is not taken for it.
func TestGroup(t *testing.T) {
	w, r := open(t)
	s := user()
	s.Spec.Group = &moorv1alpha1.SnapshotGroup{Name: "g", VolumeNames: []string{"other", "vol"}}
	w.Host.Add(s)
	w.MustReconcile(r, "snap")
	m, _ := kubetest.Read(w.DPU, mirror())
	if diff := cmp.Diff(s.Spec.Group, m.Spec.Group); diff != "" {
		t.Errorf("the group there (-here +there):\n%s", diff)
	}
	kubetest.Change(w.DPU, mirror(), func(s *moorv1alpha1.StorageSnapshot) {
		ready(s)
		s.Spec.Group = nil
	})
	w.MustReconcile(r, "snap")
	got, _ := kubetest.Read(w.Host, user())
	const pruned = "StorageSnapshot snap in DPU cluster dpu-cluster is not of the group that is asked for: apply crds/dpu there, delete this snapshot, and ask again"
	if said := said(got)[0]; said != "DPUVolumeSnapshotReconciled=False/Pending: "+pruned || got.Status.ReadyToUse || got.Status.Taken != nil {
		t.Errorf("ready %t, says %q", got.Status.ReadyToUse, said)
	}
}

// TestOfSeveralDPUClusters: a snapshot is taken in the DPU cluster of its volume, which it has on record before anything is
// made, and of which alone the controller removes it, also without its volume.
func TestOfSeveralDPUClusters(t *testing.T) {
	w, ours := open(t)
	theirs := &Reconciler{Clusters: ours.Clusters}
	theirs.Clusters.DPU = kubetest.NewDPU(t).Cluster
	ours.Clusters.DPUCluster, theirs.Clusters.DPUCluster = "dpf/east", "dpf/west"
	w.Host.Add(user())
	both := func() *moorv1alpha1.DPUVolumeSnapshot {
		t.Helper()
		w.MustReconcile(ours, "snap")
		w.MustReconcile(theirs, "snap")
		got, _ := kubetest.Read(w.Host, user())
		return got
	}
	if got := both(); !strings.Contains(said(got)[0], "DPUVolume vol, of which it is to be taken, is not there, or not in a DPU cluster yet") || got.Status.DPUCluster != "" {
		t.Errorf("before its volume: %v, DPU cluster %q", said(got), got.Status.DPUCluster)
	}
	v := kubetest.DPUVolume("vol")
	v.Status.State = &storagev1alpha1.DPUVolumeState{DPUCluster: &storagev1alpha1.ObjectReference{Namespace: "dpf", Name: "east"}}
	w.Host.Add(v)
	w.AfterWrite(func(verb string, o client.Object) {
		if _, made := o.(*moorv1alpha1.StorageSnapshot); made {
			if s, _ := kubetest.Read(w.Host, user()); s.Status.DPUCluster != "dpf/east" {
				t.Errorf("%s of the StorageSnapshot before it is on record where", verb)
			}
		}
	})
	if got := both(); got.Status.DPUCluster != "dpf/east" || !w.DPU.Has(&moorv1alpha1.StorageSnapshot{}, "snap") {
		t.Errorf("of a volume: DPU cluster %q", got.Status.DPUCluster)
	}
	w.Host.Remove(kubetest.DPUVolume("vol"), user())
	w.MustReconcile(theirs, "snap")
	if !w.Host.Has(user(), "snap") {
		t.Fatal("the controller of another DPU cluster let it go")
	}
	w.MustReconcile(ours, "snap")
	w.MustReconcile(ours, "snap")
	if w.Host.Has(user(), "snap") || w.DPU.Has(&moorv1alpha1.StorageSnapshot{}, "snap") {
		t.Error("its own controller did not remove it")
	}
}
