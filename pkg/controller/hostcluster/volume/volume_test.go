package volume

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
)

func open(t *testing.T) (*kubetest.Clusters, *Reconciler) {
	w := kubetest.New(t)
	return w, &Reconciler{Clusters: hostclustertest.Clusters(w)}
}

func user() *storagev1alpha1.DPUVolume { return kubetest.DPUVolume("vol", corev1.ReadWriteOnce) }

func mirror() *storagev1alpha1.Volume {
	return &storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject("vol")}
}

// placed is what snap-controller writes when it has chosen a vendor.
func placed(m *storagev1alpha1.Volume) {
	m.Spec.StoragePolicyParameters = map[string]string{"color": "blue", "shape": "round"}
	m.Spec.Volume.StorageVendorName, m.Spec.Volume.StorageVendorPluginName = "vendor", "plugin"
	m.Spec.Volume.CSIReference = storagev1alpha1.CSIReference{CSIDriverName: "driver", StorageClassName: "class", PVCRef: &storagev1alpha1.ObjectRef{Name: "vol-pvc"}}
	m.Status.State, m.Status.Message = storagev1alpha1.VolumeInProgress, "waiting for the vendor to provision claim vol-pvc"
}

// available is what it writes when the vendor has made the volume.
func available(m *storagev1alpha1.Volume) {
	placed(m)
	size := resource.MustParse("2Gi")
	m.Spec.Volume.Capacity, m.Spec.Volume.AccessModes = &size, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	m.Spec.Volume.VolumeAttributes = map[string]string{"lun": "7"}
	m.Status.State, m.Status.Message = storagev1alpha1.VolumeAvailable, ""
}

func said(v *storagev1alpha1.DPUVolume) []string {
	return kubetest.Conditions(v.Status.Conditions, storagev1alpha1.ConditionDPUVolumeReconciled, storagev1alpha1.ConditionScheduled, storagev1alpha1.ConditionBound)
}

func TestStatus(t *testing.T) {
	const (
		noPolicy = "DPUStoragePolicy policy does not exist in namespace users: create it, or correct the parameter policy of the StorageClass"
		idle     = "waiting for snap-controller in the DPU cluster"
		making   = "waiting for the vendor to provision claim vol-pvc"
	)
	for _, tc := range []struct {
		name   string
		policy bool
		there  func(*storagev1alpha1.Volume)
		phase  storagev1alpha1.DPUVolumePhase
		want   []string
	}{
		{
			"no policy", false, nil, storagev1alpha1.DPUVolumePending,
			[]string{"DPUVolumeReconciled=False/Pending: " + noPolicy, "Scheduled=False/Pending: " + noPolicy, "Bound=False/Pending: " + noPolicy},
		},
		{
			"not looked at", true, func(*storagev1alpha1.Volume) {}, storagev1alpha1.DPUVolumePending,
			[]string{"DPUVolumeReconciled=True/Success", "Scheduled=False/Pending: " + idle, "Bound=False/Pending: " + idle},
		},
		{
			"vendor chosen", true, placed, storagev1alpha1.DPUVolumePending,
			[]string{"DPUVolumeReconciled=True/Success", "Scheduled=True/Success", "Bound=False/Pending: " + making},
		},
		{
			"made", true, available, storagev1alpha1.DPUVolumeBound,
			[]string{"DPUVolumeReconciled=True/Success", "Scheduled=True/Success", "Bound=True/Success"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(user())
			if tc.policy {
				w.Host.Add(kubetest.DPUStoragePolicy("policy"))
			}
			w.MustReconcile(r, "vol")
			if tc.there != nil {
				kubetest.Change(w.DPU, mirror(), tc.there)
			}
			w.MustReconcile(r, "vol")
			got, _ := kubetest.Read(w.Host, user())
			if diff := cmp.Diff(tc.want, said(got)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if got.Status.Phase != tc.phase {
				t.Errorf("phase %s, want %s", got.Status.Phase, tc.phase)
			}
			ready := kubetest.Conditions(got.Status.Conditions, storagev1alpha1.ConditionReady)[0] == "Ready=True/Success"
			if ready != (tc.phase == storagev1alpha1.DPUVolumeBound) {
				t.Errorf("ready %v in phase %s", ready, tc.phase)
			}
			before := w.Writes()
			w.MustReconcile(r, "vol")
			if n := w.Writes() - before; n != 0 {
				t.Errorf("a pass over what has not changed wrote %d times", n)
			}
		})
	}
}

func TestMirror(t *testing.T) {
	w, r := open(t)
	v := user()
	v.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Gi")}
	w.Host.Add(v, kubetest.DPUStoragePolicy("policy"))
	w.MustReconcile(r, "vol")
	got, found := kubetest.Read(w.DPU, mirror())
	if !found {
		t.Fatal("there is no Volume")
	}
	request, limit := resource.MustParse("1Gi"), resource.MustParse("4Gi")
	want := storagev1alpha1.VolumeSpec{
		Request: storagev1alpha1.VolumeRequest{
			AccessModes: v.Spec.AccessModes, VolumeMode: v.Spec.VolumeMode,
			CapacityRange: storagev1alpha1.CapacityRange{Request: &request, Limit: &limit},
		},
		StorageParameters: map[string]string{"color": "red", "policy": "policy"},
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if got.Annotations[storagev1alpha1.AnnotationOwnedByDPUVolume] != "users/vol" {
		t.Errorf("annotations %v", got.Annotations)
	}
}

func TestStateOfBound(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user(), kubetest.DPUStoragePolicy("policy"))
	w.MustReconcile(r, "vol")
	kubetest.Change(w.DPU, mirror(), available)
	w.MustReconcile(r, "vol")
	got, _ := kubetest.Read(w.Host, user())
	want := &storagev1alpha1.DPUVolumeState{
		DPUCluster:                   &storagev1alpha1.ObjectReference{Name: kubetest.DPUClusterName, Namespace: kubetest.DPUNamespace},
		Parameters:                   map[string]string{"color": "red", "shape": "round"}, // the volume's own win
		SelectedDPUStorageVendorName: "vendor", StorageVendorPluginName: "plugin", StorageClassName: "class", CSIDriverName: "driver",
		PersistentVolumeClaimRef: &storagev1alpha1.ObjectReference{Name: "vol-pvc", Namespace: kubetest.DPUNamespace},
		VolumeInfo: &storagev1alpha1.VolumeInfo{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: user().Spec.VolumeMode,
			VolumeAttributes: map[string]string{"lun": "7"},
		},
	}
	if diff := cmp.Diff(want, got.Status.State); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}

// TestPolicyGoes: a volume that has its mirror needs the policy no more.
func TestPolicyGoes(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user(), kubetest.DPUStoragePolicy("policy"))
	w.MustReconcile(r, "vol")
	w.Host.Remove(kubetest.DPUStoragePolicy("policy"))
	kubetest.Change(w.DPU, mirror(), available)
	w.MustReconcile(r, "vol")
	if got, _ := kubetest.Read(w.Host, user()); got.Status.Phase != storagev1alpha1.DPUVolumeBound {
		t.Errorf("phase %s: %q", got.Status.Phase, said(got))
	}
}

func TestNamesake(t *testing.T) {
	w, r := open(t)
	old := mirror()
	old.Labels = map[string]string{"storage.moor.dev/owner-uid": "an earlier one"}
	w.DPU.Add(old)
	kubetest.Change(w.DPU, mirror(), available)
	w.Host.Add(user(), kubetest.DPUStoragePolicy("policy"))
	w.MustReconcile(r, "vol")
	got, _ := kubetest.Read(w.Host, user())
	if got.Status.Phase != storagev1alpha1.DPUVolumePending || got.Status.State != nil {
		t.Errorf("a namesake's volume was taken for ours: %+v", got.Status)
	}
	const words = "a Volume vol of an earlier DPUVolume of this name is still in DPU cluster dpu-cluster; it has to go first"
	if line := said(got)[0]; line != "DPUVolumeReconciled=False/Pending: "+words {
		t.Errorf("got %q", line)
	}
	w.Host.Remove(user())
	w.MustReconcile(r, "vol")
	if _, found := kubetest.Read(w.Host, user()); found {
		t.Error("the DPUVolume waits for a mirror that is not its own")
	}
	if _, found := kubetest.Read(w.DPU, mirror()); !found {
		t.Error("the namesake's Volume was removed")
	}
}

// TestMirrorBeingDeleted: a Volume deleted by hand is not taken for a sound one.
func TestMirrorBeingDeleted(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user(), kubetest.DPUStoragePolicy("policy"))
	w.MustReconcile(r, "vol")
	kubetest.Change(w.DPU, mirror(), func(m *storagev1alpha1.Volume) { m.Finalizers = []string{storagev1alpha1.FinalizerVolume} })
	w.DPU.Remove(mirror())
	w.MustReconcile(r, "vol")
	got, _ := kubetest.Read(w.Host, user())
	if line := said(got)[0]; line != "DPUVolumeReconciled=False/Pending: Volume vol in DPU cluster dpu-cluster is being deleted" {
		t.Errorf("got %q", line)
	}
}

// TestLostMirrorIsNotMadeAnew: a Volume that was there and is not any more is missed, and
// no empty one stands in its place; nothing keeps the user's from being deleted.
func TestLostMirrorIsNotMadeAnew(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user(), kubetest.DPUStoragePolicy("policy"))
	w.MustReconcile(r, "vol")
	kubetest.Change(w.DPU, mirror(), available)
	w.MustReconcile(r, "vol")
	w.DPU.Remove(mirror())
	for range 2 {
		w.MustReconcile(r, "vol")
	}
	if _, found := kubetest.Read(w.DPU, mirror()); found {
		t.Error("an empty Volume was made in the place of one with data")
	}
	got, _ := kubetest.Read(w.Host, user())
	const words = "Volume vol is not in DPU cluster dpu-cluster any more, and a new one would be empty: bring it back there, or delete this volume"
	if line := said(got)[0]; line != "DPUVolumeReconciled=False/Pending: "+words {
		t.Errorf("got %q", line)
	}
	w.Host.Remove(user())
	w.MustReconcile(r, "vol")
	if _, found := kubetest.Read(w.Host, user()); found {
		t.Error("the DPUVolume cannot be deleted")
	}
}

// TestRemoveInOrder: attachments first, then the Volume, then the DPUVolume.
func TestRemoveInOrder(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user(), kubetest.DPUStoragePolicy("policy"), kubetest.DPUVolumeAttachment("vol", "n2"), kubetest.DPUVolumeAttachment("vol", "n1"), kubetest.DPUVolumeAttachment("other", "n1"))
	w.MustReconcile(r, "vol")
	kubetest.Change(w.DPU, mirror(), func(m *storagev1alpha1.Volume) {
		m.Finalizers = []string{storagev1alpha1.FinalizerVolume}
		available(m)
	})
	w.Host.Remove(user())
	expect := func(what, words string, deleting bool) {
		t.Helper()
		w.MustReconcile(r, "vol")
		got, found := kubetest.Read(w.Host, user())
		if !found {
			t.Fatalf("%s: the DPUVolume is gone", what)
		}
		if line := said(got)[0]; line != "DPUVolumeReconciled=False/AwaitingDeletion: "+words {
			t.Errorf("%s: got %q", what, line)
		}
		if line := kubetest.Conditions(got.Status.Conditions, storagev1alpha1.ConditionReady)[0]; !strings.HasPrefix(line, "Ready=False/AwaitingDeletion") {
			t.Errorf("%s: got %q", what, line)
		}
		if m, found := kubetest.Read(w.DPU, mirror()); !found || m.DeletionTimestamp.IsZero() == deleting {
			t.Errorf("%s: Volume found %v, being deleted since %v", what, found, m.DeletionTimestamp)
		}
		before := w.Writes()
		w.MustReconcile(r, "vol")
		if n := w.Writes() - before; n != 0 {
			t.Errorf("%s: a second pass wrote %d times", what, n)
		}
	}
	expect("two attachments", "volume is attached: n1-vol, n2-vol", false)
	w.Host.Remove(kubetest.DPUVolumeAttachment("vol", "n1"))
	expect("one attachment", "volume is attached: n2-vol", false)
	w.Host.Remove(kubetest.DPUVolumeAttachment("vol", "n2"))
	expect("not attached", "waiting for the vendor's volume to be removed", true)
	kubetest.Change(w.DPU, mirror(), func(m *storagev1alpha1.Volume) { m.Status.Message = "the vendor says no" })
	expect("vendor refuses", "the vendor says no", true)
	kubetest.Change(w.DPU, mirror(), func(m *storagev1alpha1.Volume) { m.Finalizers = nil })
	w.MustReconcile(r, "vol")
	if _, found := kubetest.Read(w.Host, user()); found {
		t.Error("the DPUVolume is still there")
	}
	w.MustReconcile(r, "vol")
}

// TestRemoveOfUnseenMirror: the cache does not show yet what was made a moment
// ago; the Volume must not be left behind without an owner.
func TestRemoveOfUnseenMirror(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user(), kubetest.DPUStoragePolicy("policy"))
	w.MustReconcile(r, "vol")
	w.Host.Remove(user())
	w.CacheHides(mirror())
	w.MustReconcile(r, "vol")
	if _, found := kubetest.Read(w.DPU, mirror()); found {
		if _, owner := kubetest.Read(w.Host, user()); !owner {
			t.Fatal("the DPUVolume went and left its Volume behind")
		}
	}
	w.CacheIsCurrent()
	w.MustReconcile(r, "vol")
	w.MustReconcile(r, "vol")
	if _, found := kubetest.Read(w.DPU, mirror()); found {
		t.Error("the Volume is still there")
	}
	if _, found := kubetest.Read(w.Host, user()); found {
		t.Error("the DPUVolume is still there")
	}
}

func TestWakes(t *testing.T) {
	w, r := open(t)
	bound := kubetest.DPUVolume("bound", corev1.ReadWriteOnce)
	bound.Status.Phase = storagev1alpha1.DPUVolumeBound
	other := kubetest.DPUVolume("other", corev1.ReadWriteOnce)
	other.Spec.DPUStoragePolicyName = "another"
	w.Host.Add(user(), bound, other)
	if got := r.ofPolicy(t.Context(), kubetest.DPUStoragePolicy("policy")); len(got) != 1 || got[0].Name != "vol" {
		t.Errorf("a policy wakes %v, want its unbound volume", got)
	}
	if got := ofAttachment(t.Context(), kubetest.DPUVolumeAttachment("vol", "n")); len(got) != 1 || got[0].NamespacedName != (client.ObjectKey{Namespace: kubetest.HostNamespace, Name: "vol"}) {
		t.Errorf("an attachment wakes %v", got)
	}
}
