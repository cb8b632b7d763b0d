package vendor

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	world "github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
)

func open(t *testing.T) (*world.World, *Reconciler) {
	w := world.New(t)
	return w, &Reconciler{Clusters: w.Clusters}
}

func said(v *storagev1alpha1.DPUStorageVendor) []string {
	return world.Say(v.Status.Conditions, storagev1alpha1.ConditionReady, storagev1alpha1.ConditionValid, storagev1alpha1.ConditionDPUStorageVendorReconciled)
}

func TestStatus(t *testing.T) {
	const (
		noClass = "StorageClass v-class does not exist in DPU cluster dpu-cluster: install the vendor's CSI controller there, or correct spec.storageClassName"
		noDrive = "CSIDriver driver, the provisioner of StorageClass v-class, does not exist in DPU cluster dpu-cluster: install the vendor's CSI driver there"
	)
	for _, tc := range []struct {
		name  string
		there []client.Object
		want  []string
	}{
		{"nothing there", nil, []string{"Ready=False/Pending: not ready: Valid: " + noClass, "Valid=False/Error: " + noClass, "DPUStorageVendorReconciled=True/Success"}},
		{"class without driver", world.Class("v-class", "driver")[:1], []string{"Ready=False/Pending: not ready: Valid: " + noDrive, "Valid=False/Error: " + noDrive, "DPUStorageVendorReconciled=True/Success"}},
		{"driver without class", world.Class("v-class", "driver")[1:], []string{"Ready=False/Pending: not ready: Valid: " + noClass, "Valid=False/Error: " + noClass, "DPUStorageVendorReconciled=True/Success"}},
		{"both", world.Class("v-class", "driver"), []string{"Ready=True/Success", "Valid=True/Success", "DPUStorageVendorReconciled=True/Success"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, r := open(t)
			w.AddHost(world.Vendor("v"))
			w.AddDPU(tc.there...)
			w.MustPass(r, "v")
			got, _ := world.Read(w, w.Host, world.Vendor("v"))
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
			w.MustPass(r, "v")
			if n := w.Writes() - before; n != 0 {
				t.Errorf("a pass over what has not changed wrote %d times", n)
			}
		})
	}
}

// TestDriverLeaves: a vendor that was valid and lost its driver says so.
func TestDriverLeaves(t *testing.T) {
	w, r := open(t)
	w.AddHost(world.Vendor("v"))
	there := world.Class("v-class", "driver")
	w.AddDPU(there...)
	w.MustPass(r, "v")
	world.Remove(w, w.DPU, there[1])
	w.MustPass(r, "v")
	got, _ := world.Read(w, w.Host, world.Vendor("v"))
	if said(got)[1] == "Valid=True/Success" || len(got.Status.DPUClusters) != 0 {
		t.Errorf("still valid: %v, clusters %v", said(got), got.Status.DPUClusters)
	}
}

func TestMirrorFollows(t *testing.T) {
	w, r := open(t)
	w.AddHost(world.Vendor("v"))
	w.MustPass(r, "v")
	mirror, found := world.Read(w, w.DPU, &storagev1alpha1.StorageVendor{ObjectMeta: world.Mirror("v")})
	if !found || mirror.Spec.StorageClassName != "v-class" || mirror.Spec.PluginName != "v-plugin" {
		t.Fatalf("mirror: found %v, spec %+v", found, mirror.Spec)
	}
	world.Change(w, w.DPU, mirror, func(m *storagev1alpha1.StorageVendor) { m.Spec.PluginName, m.Labels = "by-hand", nil })
	w.MustPass(r, "v")
	mirror, _ = world.Read(w, w.DPU, &storagev1alpha1.StorageVendor{ObjectMeta: world.Mirror("v")})
	if mirror.Spec.PluginName != "v-plugin" || mirror.Labels[storagev1alpha1.LabelOwnerUID] == "" {
		t.Errorf("a change by hand stayed: %+v, labels %v", mirror.Spec, mirror.Labels)
	}
}

func TestRemove(t *testing.T) {
	w, r := open(t)
	w.AddHost(world.Vendor("v"), world.Policy("p2", "v", "w"), world.Policy("p1", "v"))
	w.AddDPU(world.Class("v-class", "driver")...)
	w.MustPass(r, "v")
	world.Remove(w, w.Host, world.Vendor("v"))
	w.MustPass(r, "v")
	got, found := world.Read(w, w.Host, world.Vendor("v"))
	if !found {
		t.Fatal("the vendor went while policies name it")
	}
	const held = "still named by DPUStoragePolicy p1, p2"
	want := []string{"Ready=False/AwaitingDeletion: not ready: DPUStorageVendorReconciled: " + held, "Valid=True/Success", "DPUStorageVendorReconciled=False/AwaitingDeletion: " + held}
	if diff := cmp.Diff(want, said(got)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if _, found := world.Read(w, w.DPU, &storagev1alpha1.StorageVendor{ObjectMeta: world.Mirror("v")}); !found {
		t.Error("the mirror went while policies name the vendor")
	}
	world.Remove(w, w.Host, world.Policy("p1"))
	world.Remove(w, w.Host, world.Policy("p2"))
	w.MustPass(r, "v")
	if _, found := world.Read(w, w.Host, world.Vendor("v")); found {
		t.Error("the vendor is still there")
	}
	if _, found := world.Read(w, w.DPU, &storagev1alpha1.StorageVendor{ObjectMeta: world.Mirror("v")}); found {
		t.Error("the mirror is still there")
	}
	w.MustPass(r, "v") // of what is gone
}

// TestRemoveLeavesNamesake: the mirror of a vendor of the same name that came
// later is none of ours.
func TestRemoveLeavesNamesake(t *testing.T) {
	w, r := open(t)
	w.AddHost(world.Vendor("v"))
	w.MustPass(r, "v")
	mirror := &storagev1alpha1.StorageVendor{ObjectMeta: world.Mirror("v")}
	world.Change(w, w.DPU, mirror, func(m *storagev1alpha1.StorageVendor) { m.Labels[storagev1alpha1.LabelOwnerUID] = "another" })
	world.Remove(w, w.Host, world.Vendor("v"))
	w.MustPass(r, "v")
	if _, found := world.Read(w, w.Host, world.Vendor("v")); found {
		t.Error("the vendor is still there")
	}
	if _, found := world.Read(w, w.DPU, mirror); !found {
		t.Error("the mirror of a namesake was removed")
	}
}

func TestWakes(t *testing.T) {
	w, r := open(t)
	w.AddHost(world.Vendor("v"), world.Vendor("u"))
	for name, got := range map[string][]string{
		"class":  names(r.ofClass(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "v-class"}})),
		"driver": names(r.ofDriver(t.Context(), &storagev1.CSIDriver{})),
		"policy": names(r.ofPolicy(t.Context(), world.Policy("p", "x", "y"))),
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
	w.AddHost(world.Vendor("v"))
	w.MustPass(r, "v")
	world.Remove(w, w.Host, world.Vendor("v"))
	w.CacheHides(&storagev1alpha1.StorageVendor{ObjectMeta: world.Mirror("v")})
	w.MustPass(r, "v")
	if _, found := world.Read(w, w.DPU, &storagev1alpha1.StorageVendor{ObjectMeta: world.Mirror("v")}); found {
		t.Error("the mirror was left behind")
	}
}
