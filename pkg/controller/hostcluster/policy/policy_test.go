package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
)

func open(t *testing.T) (*kubetest.Clusters, *Reconciler) {
	w := kubetest.New(t)
	return w, &Reconciler{Clusters: hostclustertest.Clusters(w)}
}

// checked is a vendor that the vendor reconciler has looked at.
func checked(name, fault string) *storagev1alpha1.DPUStorageVendor {
	v := kubetest.DPUStorageVendor(name)
	c := kube.Conditions{List: &v.Status.Conditions, Generation: 1}
	if fault == "" {
		c.True(storagev1alpha1.ConditionValid)
	} else {
		c.False(storagev1alpha1.ConditionValid, storagev1alpha1.ReasonError, fault)
	}
	return v
}

func said(p *storagev1alpha1.DPUStoragePolicy) []string {
	return kubetest.Conditions(p.Status.Conditions, storagev1alpha1.ConditionValid, storagev1alpha1.ConditionDPUStoragePolicyReconciled, storagev1alpha1.ConditionReady)
}

func mirror() *storagev1alpha1.StoragePolicy {
	return &storagev1alpha1.StoragePolicy{ObjectMeta: kubetest.DPUObject("p")}
}

func TestStatus(t *testing.T) {
	for _, tc := range []struct {
		name    string
		vendors []*storagev1alpha1.DPUStorageVendor
		state   storagev1alpha1.StoragePolicyState
		message string
		valid   string
		ready   bool
	}{
		{"no vendors", nil, "", "", "Valid=False/Error: DPUStorageVendor a does not exist in namespace users; DPUStorageVendor b does not exist in namespace users", false},
		{"one missing", []*storagev1alpha1.DPUStorageVendor{checked("a", "")}, storagev1alpha1.StoragePolicyValid, "", "Valid=False/Error: DPUStorageVendor b does not exist in namespace users", false},
		{"one not checked", []*storagev1alpha1.DPUStorageVendor{checked("a", ""), kubetest.DPUStorageVendor("b")}, "", "", "Valid=False/Error: DPUStorageVendor b has not been checked yet", false},
		{"one invalid", []*storagev1alpha1.DPUStorageVendor{checked("a", "no class"), checked("b", "")}, "", "", "Valid=False/Error: DPUStorageVendor a: no class", false},
		{"not looked at there", []*storagev1alpha1.DPUStorageVendor{checked("a", ""), checked("b", "")}, "", "", "Valid=False/Pending: waiting for snap-controller in the DPU cluster to check the policy", false},
		{"invalid there", []*storagev1alpha1.DPUStorageVendor{checked("a", ""), checked("b", "")}, storagev1alpha1.StoragePolicyInvalid, "words of the other side", "Valid=False/Error: words of the other side", false},
		{"valid", []*storagev1alpha1.DPUStorageVendor{checked("a", ""), checked("b", "")}, storagev1alpha1.StoragePolicyValid, "", "Valid=True/Success", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(kubetest.DPUStoragePolicy("p", "a", "b"))
			for _, v := range tc.vendors {
				w.Host.Add(v)
			}
			w.MustReconcile(r, "p")
			kubetest.Change(w.DPU, mirror(), func(m *storagev1alpha1.StoragePolicy) { m.Status.State, m.Status.Message = tc.state, tc.message })
			w.MustReconcile(r, "p")
			got, _ := kubetest.Read(w.Host, kubetest.DPUStoragePolicy("p"))
			lines := said(got)
			if lines[0] != tc.valid || lines[1] != "DPUStoragePolicyReconciled=True/Success" || (lines[2] == "Ready=True/Success") != tc.ready {
				t.Errorf("got %q; want %q, ready %v", lines, tc.valid, tc.ready)
			}
			before := w.Writes()
			w.MustReconcile(r, "p")
			if n := w.Writes() - before; n != 0 {
				t.Errorf("a pass over what has not changed wrote %d times", n)
			}
		})
	}
}

// TestCapacity: the room that the DPU cluster tells of is told in the host
// cluster, and no longer than it is.
func TestCapacity(t *testing.T) {
	w, r := open(t)
	w.Host.Add(kubetest.DPUStoragePolicy("p", "a"), checked("a", ""))
	w.MustReconcile(r, "p")
	for _, want := range []*storagev1alpha1.PolicyCapacity{
		{Available: resource.MustParse("3Gi"), MaximumVolumeSize: ptr.To(resource.MustParse("1Gi"))},
		{Available: resource.MustParse("2Gi")},
		nil,
	} {
		kubetest.Change(w.DPU, mirror(), func(m *storagev1alpha1.StoragePolicy) { m.Status.Capacity = want })
		w.MustReconcile(r, "p")
		got, _ := kubetest.Read(w.Host, kubetest.DPUStoragePolicy("p"))
		if diff := cmp.Diff(want, got.Status.Capacity); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestMirror(t *testing.T) {
	for _, tc := range []struct {
		here  storagev1alpha1.SelectionAlgorithm
		there storagev1alpha1.StorageSelectionAlg
	}{
		{storagev1alpha1.SelectRandom, storagev1alpha1.AlgRandom},
		{storagev1alpha1.SelectNumberVolumes, storagev1alpha1.AlgLocalNVolumes},
		{"", storagev1alpha1.AlgLocalNVolumes},
	} {
		t.Run(string(tc.here), func(t *testing.T) {
			w, r := open(t)
			p := kubetest.DPUStoragePolicy("p", "a", "b")
			p.Spec.SelectionAlgorithm, p.Spec.Parameters = tc.here, map[string]string{"x": "1"}
			w.Host.Add(p)
			w.MustReconcile(r, "p")
			got, _ := kubetest.Read(w.DPU, mirror())
			want := storagev1alpha1.StoragePolicySpec{StorageVendors: []string{"a", "b"}, StorageParameters: map[string]string{"x": "1"}, StorageSelectionAlg: tc.there}
			if diff := cmp.Diff(want, got.Spec); diff != "" {
				t.Errorf("mirror (-want +got):\n%s", diff)
			}
			kubetest.Change(w.Host, kubetest.DPUStoragePolicy("p"), func(p *storagev1alpha1.DPUStoragePolicy) { p.Spec.DPUStorageVendors = []string{"c"} })
			w.MustReconcile(r, "p")
			if got, _ = kubetest.Read(w.DPU, mirror()); !cmp.Equal(got.Spec.StorageVendors, []string{"c"}) {
				t.Errorf("the mirror did not follow: %v", got.Spec.StorageVendors)
			}
		})
	}
}

func TestRemove(t *testing.T) {
	for name, namesake := range map[string]bool{"ours": false, "of a namesake": true} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(kubetest.DPUStoragePolicy("p", "a"))
			w.MustReconcile(r, "p")
			if namesake {
				kubetest.Change(w.DPU, mirror(), func(m *storagev1alpha1.StoragePolicy) { m.Labels[storagev1alpha1.LabelOwnerUID] = "another" })
			}
			w.Host.Remove(kubetest.DPUStoragePolicy("p"))
			w.MustReconcile(r, "p")
			if _, found := kubetest.Read(w.Host, kubetest.DPUStoragePolicy("p")); found {
				t.Error("the policy is still there")
			}
			if _, found := kubetest.Read(w.DPU, mirror()); found != namesake {
				t.Errorf("mirror found: %v, want %v", found, namesake)
			}
		})
	}
}

func TestVendorWakes(t *testing.T) {
	w, r := open(t)
	w.Host.Add(kubetest.DPUStoragePolicy("p", "a", "b"), kubetest.DPUStoragePolicy("q", "b"))
	if got := r.ofVendor(t.Context(), kubetest.DPUStorageVendor("a")); len(got) != 1 || got[0].Name != "p" {
		t.Errorf("vendor a wakes %v", got)
	}
	if got := r.ofVendor(t.Context(), kubetest.DPUStorageVendor("b")); len(got) != 2 {
		t.Errorf("vendor b wakes %v", got)
	}
}

// TestRemoveOfUnseenMirror: the cache does not show yet what was made a moment
// ago; it is not left behind.
func TestRemoveOfUnseenMirror(t *testing.T) {
	w, r := open(t)
	w.Host.Add(kubetest.DPUStoragePolicy("p"))
	w.MustReconcile(r, "p")
	w.Host.Remove(kubetest.DPUStoragePolicy("p"))
	w.CacheHides(mirror())
	w.MustReconcile(r, "p")
	if _, found := kubetest.Read(w.DPU, mirror()); found {
		t.Error("the mirror was left behind")
	}
}
