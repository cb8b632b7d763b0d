package policy_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/dpucluster/policy"
)

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		name    string
		vendors []policy.Vendor
		want    storagev1alpha1.StoragePolicyStatus
	}{
		{
			"all there",
			[]policy.Vendor{{Name: "a", Exists: true, StorageClass: "s", StorageClassExists: true}},
			storagev1alpha1.StoragePolicyStatus{State: storagev1alpha1.StoragePolicyValid},
		},
		{"no vendor", nil, storagev1alpha1.StoragePolicyStatus{
			State:   storagev1alpha1.StoragePolicyInvalid,
			Message: "the policy names no StorageVendor",
		}},
		{
			"everything missing is named",
			[]policy.Vendor{{Name: "a"}, {Name: "b", Exists: true, StorageClass: "fast"}, {Name: "c"}},
			storagev1alpha1.StoragePolicyStatus{
				State:   storagev1alpha1.StoragePolicyInvalid,
				Message: "StorageVendor a does not exist; StorageClass fast of StorageVendor b does not exist; StorageVendor c does not exist",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, policy.Judge(tc.vendors)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPolicyFollowsItsVendors(t *testing.T) {
	c := kubetest.NewDPU(t)
	c.Add(&storagev1alpha1.StoragePolicy{
		ObjectMeta: kubetest.DPUObject("gold"),
		Spec:       storagev1alpha1.StoragePolicySpec{StorageVendors: []string{"a", "b"}},
	})
	r := &policy.Reconciler{DPU: kube.Cluster{Client: c.Client}}
	steps := []struct {
		name  string
		act   func()
		valid bool
		words []string
	}{
		{"nothing there", func() {}, false, []string{"StorageVendor a", "StorageVendor b"}},
		{"first vendor", func() { c.Add(kubetest.StorageVendor("a"), kubetest.StorageClass("a")) }, false, []string{"StorageVendor b"}},
		{"second without class", func() { c.Add(kubetest.StorageVendor("b")) }, false, []string{"StorageClass b-class"}},
		{"complete", func() { c.Add(kubetest.StorageClass("b")) }, true, nil},
		{"class removed", func() { c.Remove(kubetest.StorageClass("a")) }, false, []string{"StorageClass a-class"}},
		{"class back", func() { c.Add(kubetest.StorageClass("a")) }, true, nil},
		{"vendor removed", func() { c.Remove(kubetest.StorageVendor("b")) }, false, []string{"StorageVendor b"}},
	}
	for _, s := range steps {
		s.act()
		reconcile(t, r, "gold")
		got := &storagev1alpha1.StoragePolicy{}
		c.Get(got, "gold")
		if valid := got.Status.State == storagev1alpha1.StoragePolicyValid; valid != s.valid {
			t.Errorf("%s: state %q, message %q", s.name, got.Status.State, got.Status.Message)
		}
		for _, w := range s.words {
			if !strings.Contains(got.Status.Message, w) {
				t.Errorf("%s: message %q does not name %q", s.name, got.Status.Message, w)
			}
		}
		before := c.Writes()
		reconcile(t, r, "gold")
		if n := c.Writes() - before; n != 0 {
			t.Errorf("%s: %d writes though nothing changed", s.name, n)
		}
	}
}

// TestCapacityOfASharedClass: the room behind a StorageClass is there once, however
// many vendors use the class.
func TestCapacityOfASharedClass(t *testing.T) {
	c := kubetest.NewDPU(t)
	shared, none := kubetest.StorageVendor("b"), kubetest.StorageVendor("c")
	shared.Spec.StorageClassName, none.Spec.StorageClassName = kubetest.StorageClass("a").Name, ""
	other := kubetest.StorageVendor("d")
	c.Add(&storagev1alpha1.StoragePolicy{
		ObjectMeta: kubetest.DPUObject("gold"), Spec: storagev1alpha1.StoragePolicySpec{StorageVendors: []string{"a", "b", "c", "d"}},
	})
	c.Add(kubetest.StorageVendor("a"), shared, none, other, kubetest.StorageClass("a"), kubetest.StorageClass("d"))
	for name, room := range map[string]string{"a": "1Gi", "d": "2Gi", "e": "4Gi"} {
		c.Add(&storagev1.CSIStorageCapacity{
			ObjectMeta: kubetest.DPUObject("of-" + name), StorageClassName: kubetest.StorageClass(name).Name, Capacity: ptr.To(resource.MustParse(room)),
		})
	}
	reconcile(t, &policy.Reconciler{DPU: kube.Cluster{Client: c.Client}}, "gold")
	got := &storagev1alpha1.StoragePolicy{}
	c.Get(got, "gold")
	if got.Status.Capacity == nil || got.Status.Capacity.Available.Cmp(resource.MustParse("3Gi")) != 0 {
		t.Errorf("capacity %+v, want 3Gi: 1 of the class that two share, 2 of the other", got.Status.Capacity)
	}
}

func TestPolicySurvivesALostWrite(t *testing.T) {
	c := kubetest.NewDPU(t)
	c.Add(&storagev1alpha1.StoragePolicy{ObjectMeta: kubetest.DPUObject("gold"), Spec: storagev1alpha1.StoragePolicySpec{StorageVendors: []string{"a"}}})
	r := &policy.Reconciler{DPU: kube.Cluster{Client: c.Client}}
	c.LoseWrite(1, false)
	if _, err := r.Reconcile(context.Background(), request("gold")); err == nil {
		t.Fatal("a lost write was swallowed")
	}
	reconcile(t, r, "gold")
	got := &storagev1alpha1.StoragePolicy{}
	c.Get(got, "gold")
	if got.Status.State != storagev1alpha1.StoragePolicyInvalid {
		t.Errorf("state %q after the repeat", got.Status.State)
	}
}

func TestPolicyGoneOrGoingIsLeftAlone(t *testing.T) {
	c := kubetest.NewDPU(t)
	going := &storagev1alpha1.StoragePolicy{ObjectMeta: kubetest.DPUObject("going")}
	going.Finalizers = []string{"example.com/x"}
	c.Add(going)
	c.Remove(going)
	r := &policy.Reconciler{DPU: kube.Cluster{Client: c.Client}}
	reconcile(t, r, "going")
	reconcile(t, r, "gone")
	if c.Writes() != 0 {
		t.Errorf("%d writes", c.Writes())
	}
}

func request(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: kubetest.DPUNamespace, Name: name}}
}

func reconcile(t *testing.T, r *policy.Reconciler, name string) {
	t.Helper()
	if _, err := r.Reconcile(context.Background(), request(name)); err != nil {
		t.Fatalf("reconcile %s: %v", name, err)
	}
}
