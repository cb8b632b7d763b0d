package vendor

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
)

func open(t *testing.T) (*kubetest.Clusters, *Reconciler) {
	w := kubetest.New(t)
	return w, &Reconciler{Clusters: hostclustertest.Clusters(w)}
}

func said(v *storagev1alpha1.DPUStorageVendor) []string {
	return kubetest.Conditions(v.Status.Conditions, storagev1alpha1.ConditionReady, storagev1alpha1.ConditionValid, storagev1alpha1.ConditionDPUStorageVendorReconciled)
}

func TestStatus(t *testing.T) {
	const (
		noClass = "StorageClass v-class does not exist in DPU cluster dpu-cluster: install the vendor's CSI controller there, or correct spec.storageClassName"
		noDrive = "CSIDriver v.csi, the provisioner of StorageClass v-class, does not exist in DPU cluster dpu-cluster: install the vendor's CSI driver there"
	)
	for _, tc := range []struct {
		name  string
		there []client.Object
		want  []string
	}{
		{"nothing there", nil, []string{"Ready=False/Pending: not ready: Valid: " + noClass, "Valid=False/Error: " + noClass, "DPUStorageVendorReconciled=True/Success"}},
		{"class without driver", []client.Object{kubetest.StorageClass("v")}, []string{"Ready=False/Pending: not ready: Valid: " + noDrive, "Valid=False/Error: " + noDrive, "DPUStorageVendorReconciled=True/Success"}},
		{"driver without class", []client.Object{kubetest.CSIDriver("v", nil)}, []string{"Ready=False/Pending: not ready: Valid: " + noClass, "Valid=False/Error: " + noClass, "DPUStorageVendorReconciled=True/Success"}},
		{"both", []client.Object{kubetest.StorageClass("v"), kubetest.CSIDriver("v", nil)}, []string{"Ready=True/Success", "Valid=True/Success", "DPUStorageVendorReconciled=True/Success"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(kubetest.DPUStorageVendor("v"))
			w.DPU.Add(tc.there...)
			w.MustReconcile(r, "v")
			got, _ := kubetest.Read(w.Host, kubetest.DPUStorageVendor("v"))
			if diff := cmp.Diff(tc.want, said(got)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if known := len(got.Status.DPUClusters) == 1; known != (len(tc.there) == 2) {
				t.Errorf("status.dpuClusters is %v", got.Status.DPUClusters)
			}
			if got.Status.ObservedGeneration != got.Generation {
				t.Errorf("observed generation %d of %d", got.Status.ObservedGeneration, got.Generation)
			}
			before := w.Writes()
			w.MustReconcile(r, "v")
			if n := w.Writes() - before; n != 0 {
				t.Errorf("a pass over what has not changed wrote %d times", n)
			}
		})
	}
}

// TestWarnings: what works and is seldom meant is said, and leaves the vendor ready.
func TestWarnings(t *testing.T) {
	const (
		retain = "StorageClass v-class in DPU cluster dpu-cluster has reclaimPolicy Retain, DPF wants Delete: of a volume that a user deletes, the vendor keeps the data and the PersistentVolume, until an administrator removes both"
		class  = "DPUStorageVendor w names StorageClass v-class too: the two are one storage, also to a policy that names both"
		plugin = "DPUStorageVendor w names plugin v-plugin too: while that does not answer on a DPU, neither vendor's volumes are attached there"
	)
	keeps := kubetest.StorageClass("v")
	keeps.ReclaimPolicy = ptr.To(corev1.PersistentVolumeReclaimRetain)
	other := func(class, plugin string) *storagev1alpha1.DPUStorageVendor {
		w := kubetest.DPUStorageVendor("w")
		w.Spec.StorageClassName, w.Spec.PluginName = class, plugin
		return w
	}
	for _, tc := range []struct {
		name  string
		class *storagev1.StorageClass
		other *storagev1alpha1.DPUStorageVendor
		want  string
	}{
		{"as recommended", kubetest.StorageClass("v"), other("w-class", "w-plugin"), "AsRecommended=True/Success"},
		{"no class yet", nil, other("w-class", "w-plugin"), "AsRecommended=True/Success"},
		{"retained", keeps, other("w-class", "w-plugin"), "AsRecommended=False/Warning: " + retain},
		{"one class", kubetest.StorageClass("v"), other("v-class", "w-plugin"), "AsRecommended=False/Warning: " + class},
		{"one plugin", kubetest.StorageClass("v"), other("w-class", "v-plugin"), "AsRecommended=False/Warning: " + plugin},
		{"all of it", keeps, other("v-class", "v-plugin"), "AsRecommended=False/Warning: " + retain + "; " + class + "; " + plugin},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(kubetest.DPUStorageVendor("v"), tc.other)
			w.DPU.Add(kubetest.CSIDriver("v", nil))
			if tc.class != nil {
				w.DPU.Add(tc.class.DeepCopy())
			}
			w.MustReconcile(r, "v")
			got, _ := kubetest.Read(w.Host, kubetest.DPUStorageVendor("v"))
			if said := kubetest.Conditions(got.Status.Conditions, storagev1alpha1.ConditionAsRecommended); said[0] != tc.want {
				t.Errorf("said: %s\nwant: %s", said[0], tc.want)
			}
			if ready := meta.IsStatusConditionTrue(got.Status.Conditions, storagev1alpha1.ConditionReady); ready != (tc.class != nil) {
				t.Errorf("ready: %t", ready)
			}
		})
	}
}

// TestOthersAreWoken: what a vendor shares with another is said of both, whichever comes last.
func TestOthersAreWoken(t *testing.T) {
	w, r := open(t)
	w.Host.Add(kubetest.DPUStorageVendor("v"), kubetest.DPUStorageVendor("w"), kubetest.DPUStorageVendor("x"))
	var names []string
	for _, q := range r.others(t.Context(), kubetest.DPUStorageVendor("w")) {
		names = append(names, q.Name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"v", "x"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDriverLeaves: a vendor that was valid and lost its driver says so.
func TestDriverLeaves(t *testing.T) {
	w, r := open(t)
	w.Host.Add(kubetest.DPUStorageVendor("v"))
	driver := kubetest.CSIDriver("v", nil)
	w.DPU.Add(kubetest.StorageClass("v"), driver)
	w.MustReconcile(r, "v")
	w.DPU.Remove(driver)
	w.MustReconcile(r, "v")
	got, _ := kubetest.Read(w.Host, kubetest.DPUStorageVendor("v"))
	if said(got)[1] == "Valid=True/Success" || len(got.Status.DPUClusters) != 0 {
		t.Errorf("still valid: %v, clusters %v", said(got), got.Status.DPUClusters)
	}
}

func TestMirrorFollows(t *testing.T) {
	w, r := open(t)
	vendor := kubetest.DPUStorageVendor("v")
	vendor.Spec.MaxShares = ptr.To(int32(2))
	w.Host.Add(vendor)
	w.MustReconcile(r, "v")
	mirror, found := kubetest.Read(w.DPU, &storagev1alpha1.StorageVendor{ObjectMeta: kubetest.DPUObject("v")})
	if !found || mirror.Spec.StorageClassName != "v-class" || mirror.Spec.PluginName != "v-plugin" || ptr.Deref(mirror.Spec.MaxShares, 0) != 2 {
		t.Fatalf("mirror: found %v, spec %+v", found, mirror.Spec)
	}
	kubetest.Change(w.DPU, mirror, func(m *storagev1alpha1.StorageVendor) { m.Spec.PluginName, m.Labels = "by-hand", nil })
	w.MustReconcile(r, "v")
	mirror, _ = kubetest.Read(w.DPU, &storagev1alpha1.StorageVendor{ObjectMeta: kubetest.DPUObject("v")})
	if mirror.Spec.PluginName != "v-plugin" || mirror.Labels[storagev1alpha1.LabelOwnerUID] == "" {
		t.Errorf("a change by hand stayed: %+v, labels %v", mirror.Spec, mirror.Labels)
	}
}

func TestRemove(t *testing.T) {
	w, r := open(t)
	w.Host.Add(kubetest.DPUStorageVendor("v"), kubetest.DPUStoragePolicy("p2", "v", "w"), kubetest.DPUStoragePolicy("p1", "v"))
	w.DPU.Add(kubetest.StorageClass("v"), kubetest.CSIDriver("v", nil))
	w.MustReconcile(r, "v")
	w.Host.Remove(kubetest.DPUStorageVendor("v"))
	w.MustReconcile(r, "v")
	got, found := kubetest.Read(w.Host, kubetest.DPUStorageVendor("v"))
	if !found {
		t.Fatal("the vendor went while policies name it")
	}
	const held = "still named by DPUStoragePolicy p1, p2"
	want := []string{"Ready=False/AwaitingDeletion: not ready: DPUStorageVendorReconciled: " + held, "Valid=True/Success", "DPUStorageVendorReconciled=False/AwaitingDeletion: " + held}
	if diff := cmp.Diff(want, said(got)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if _, found := kubetest.Read(w.DPU, &storagev1alpha1.StorageVendor{ObjectMeta: kubetest.DPUObject("v")}); !found {
		t.Error("the mirror went while policies name the vendor")
	}
	w.Host.Remove(kubetest.DPUStoragePolicy("p1"))
	w.Host.Remove(kubetest.DPUStoragePolicy("p2"))
	w.MustReconcile(r, "v")
	if _, found := kubetest.Read(w.Host, kubetest.DPUStorageVendor("v")); found {
		t.Error("the vendor is still there")
	}
	if _, found := kubetest.Read(w.DPU, &storagev1alpha1.StorageVendor{ObjectMeta: kubetest.DPUObject("v")}); found {
		t.Error("the mirror is still there")
	}
	w.MustReconcile(r, "v") // of what is gone
}

// TestRemoveLeavesNamesake: the mirror of a vendor of the same name that came
// later is none of ours.
func TestRemoveLeavesNamesake(t *testing.T) {
	w, r := open(t)
	w.Host.Add(kubetest.DPUStorageVendor("v"))
	w.MustReconcile(r, "v")
	mirror := &storagev1alpha1.StorageVendor{ObjectMeta: kubetest.DPUObject("v")}
	kubetest.Change(w.DPU, mirror, func(m *storagev1alpha1.StorageVendor) { m.Labels[storagev1alpha1.LabelOwnerUID] = "another" })
	w.Host.Remove(kubetest.DPUStorageVendor("v"))
	w.MustReconcile(r, "v")
	if _, found := kubetest.Read(w.Host, kubetest.DPUStorageVendor("v")); found {
		t.Error("the vendor is still there")
	}
	if _, found := kubetest.Read(w.DPU, mirror); !found {
		t.Error("the mirror of a namesake was removed")
	}
}

func TestWakes(t *testing.T) {
	w, r := open(t)
	w.Host.Add(kubetest.DPUStorageVendor("v"), kubetest.DPUStorageVendor("u"))
	for name, got := range map[string][]string{
		"class":  names(r.ofClass(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "v-class"}})),
		"driver": names(r.ofDriver(t.Context(), &storagev1.CSIDriver{})),
		"policy": names(r.ofPolicy(t.Context(), kubetest.DPUStoragePolicy("p", "x", "y"))),
	} {
		want := map[string][]string{"class": {"v"}, "driver": {"u", "v"}, "policy": {"x", "y"}}[name]
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("a %s wakes (-want +got):\n%s", name, diff)
		}
	}
}

func names(requests []reconcile.Request) []string {
	var out []string
	for _, r := range requests {
		out = append(out, r.Name)
	}
	return out
}

// TestRemoveOfUnseenMirror: the cache does not show yet what was made a moment
// ago; it is not left behind.
func TestRemoveOfUnseenMirror(t *testing.T) {
	w, r := open(t)
	w.Host.Add(kubetest.DPUStorageVendor("v"))
	w.MustReconcile(r, "v")
	w.Host.Remove(kubetest.DPUStorageVendor("v"))
	w.CacheHides(&storagev1alpha1.StorageVendor{ObjectMeta: kubetest.DPUObject("v")})
	w.MustReconcile(r, "v")
	if _, found := kubetest.Read(w.DPU, &storagev1alpha1.StorageVendor{ObjectMeta: kubetest.DPUObject("v")}); found {
		t.Error("the mirror was left behind")
	}
}
