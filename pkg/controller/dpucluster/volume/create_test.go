package volume_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

func TestClaimCarriesTheRequest(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.Volume("v", "gold"))
	m.pass("v")
	pvc := &corev1.PersistentVolumeClaim{}
	m.Get(pvc, "v-pvc")
	want := corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To("a-class"),
		VolumeMode:       ptr.To(corev1.PersistentVolumeBlock),
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			Limits:   corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
		},
	}
	if diff := cmp.Diff(want, pvc.Spec); diff != "" {
		t.Error(diff)
	}
	if owner := metav1.GetControllerOf(pvc); owner == nil || owner.UID != "Volume-v-1" || owner.Kind != "Volume" {
		t.Errorf("owner %+v", owner)
	}
}

func TestVolumeDescribesWhatTheVendorMade(t *testing.T) {
	m := newFixture(t)
	m.available("v", corev1.PersistentVolumeReclaimDelete)
	v := m.volume("v")
	want := storagev1alpha1.VolumeSource{
		ID:                      "Volume-v-1",
		Capacity:                ptr.To(resource.MustParse("1536Mi")),
		AccessModes:             []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany},
		ReclaimPolicy:           corev1.PersistentVolumeReclaimDelete,
		StorageVendorName:       "a",
		StorageVendorPluginName: "a-plugin",
		VolumeAttributes:        map[string]string{"array": "7"},
		CSIReference: storagev1alpha1.CSIReference{
			CSIDriverName: "a.csi", StorageClassName: "a-class",
			PVCRef: &storagev1alpha1.ObjectRef{Kind: "PersistentVolumeClaim", APIVersion: "v1", Name: "v-pvc", Namespace: kubetest.DPUNamespace},
		},
	}
	if diff := cmp.Diff(want, v.Spec.Volume, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if v.Labels["volumeId"] != "Volume-v-1" || v.Spec.StoragePolicyParameters["tier"] != "gold" || v.Spec.StoragePolicyRef.Name != "gold" {
		t.Errorf("labels %v, policy %+v, parameters %v", v.Labels, v.Spec.StoragePolicyRef, v.Spec.StoragePolicyParameters)
	}
}

func TestNormalLifeCostsThreeWrites(t *testing.T) {
	m := newFixture(t)
	m.available("v", corev1.PersistentVolumeReclaimDelete)
	if n := m.WritesOn(&storagev1alpha1.Volume{}); n > 3 {
		t.Errorf("%d writes on the Volume from creation to Available", n)
	}
	before := m.Writes()
	m.pass("v")
	if m.Writes() != before {
		t.Error("a pass over an Available volume writes")
	}
}

func TestASlowVendorIsToldOf(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.Volume("v", "gold"))
	m.pass("v")
	if after := m.pass("v").RequeueAfter; after <= 0 || after > kube.StatusGrace {
		t.Errorf("looks again after %v", after)
	}
	if s := m.volume("v").Status; s.Message != "" {
		t.Errorf("told at once: %+v", s)
	}
	m.Clock.SetTime(m.Clock.Now().Add(kube.StatusGrace))
	m.settle("v")
	want := storagev1alpha1.VolumeStatus{State: storagev1alpha1.VolumeInProgress, Message: "waiting for the vendor's PersistentVolumeClaim v-pvc"}
	if diff := cmp.Diff(want, m.volume("v").Status); diff != "" {
		t.Error(diff)
	}
}

// The choice is written before the claim is made, and stands whatever happens
// afterwards.
func TestTheVendorIsChosenOnce(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.Volume("v", "gold"))
	m.LoseWrite(2, false)
	if _, err := m.try("v"); err == nil {
		t.Fatal("a lost claim was swallowed")
	}
	if v := m.volume("v"); v.Spec.Volume.StorageVendorName != "a" || len(v.Finalizers) != 1 {
		t.Fatalf("chosen %q, finalizers %v", v.Spec.Volume.StorageVendorName, v.Finalizers)
	}
	kubetest.Change(m.Cluster, &storagev1alpha1.StoragePolicy{ObjectMeta: kubetest.DPUObject("gold")}, func(p *storagev1alpha1.StoragePolicy) {
		p.Spec.StorageVendors = []string{"b"}
	})
	m.Remove(kubetest.StorageVendor("a"))
	m.pass("v")
	pvc := &corev1.PersistentVolumeClaim{}
	m.Get(pvc, "v-pvc")
	if v := m.volume("v"); v.Spec.Volume.StorageVendorName != "a" || *pvc.Spec.StorageClassName != "a-class" {
		t.Errorf("vendor %s, class %s", v.Spec.Volume.StorageVendorName, *pvc.Spec.StorageClassName)
	}
}

func TestAnOldCacheCannotChooseAgain(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.Volume("v", "gold"))
	unplaced := m.volume("v")
	kubetest.Change(m.Cluster, &storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject("v")}, func(v *storagev1alpha1.Volume) { v.Spec.Volume.StorageVendorName = "b" })
	m.CacheShows(unplaced)
	m.pass("v")
	v := m.volume("v")
	if v.Spec.Volume.StorageVendorName != "b" || m.Has(&corev1.PersistentVolumeClaim{}, "v-pvc") {
		t.Errorf("vendor %q; a claim was made: %v", v.Spec.Volume.StorageVendorName, m.Has(&corev1.PersistentVolumeClaim{}, "v-pvc"))
	}
}

func TestAClaimThatTheCacheDoesNotShowYetIsNoError(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.Volume("v", "gold"))
	m.pass("v")
	m.CacheHides(&corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc")})
	m.pass("v")
	if s := m.volume("v").Status; s.Message != "" {
		t.Errorf("message %q", s.Message)
	}
	m.bind("v-pvc", "pv", corev1.PersistentVolumeReclaimDelete)
	m.CacheIsCurrent()
	m.settle("v")
	if s := m.volume("v").Status; s.State != storagev1alpha1.VolumeAvailable {
		t.Errorf("%+v", s)
	}
}

func TestVolumesSpreadOverVendors(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.StoragePolicy("silver", "a"))
	m.Add(kubetest.Volume("s", "silver"), kubetest.Volume("g1", "gold"), kubetest.Volume("g2", "gold"), kubetest.Volume("g3", "gold"))
	got := map[string]string{}
	for _, name := range []string{"s", "g1", "g2", "g3"} {
		m.settle(name)
		got[name] = m.volume(name).Spec.Volume.StorageVendorName
	}
	if diff := cmp.Diff(map[string]string{"s": "a", "g1": "b", "g2": "a", "g3": "b"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWordsForWhatIsWaitedFor(t *testing.T) {
	pvc := func(change func(*corev1.PersistentVolumeClaim)) func(*fixture) {
		return func(m *fixture) {
			m.pass("v")
			kubetest.Change(m.Cluster, &corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc")}, change)
		}
	}
	for _, tc := range []struct {
		name  string
		world func(m *fixture)
		words string
	}{
		{"no policy named", func(m *fixture) { m.edit(func(v *storagev1alpha1.Volume) { v.Spec.StorageParameters = nil }) }, `no key "policy"`},
		{"unknown policy", func(m *fixture) {
			m.edit(func(v *storagev1alpha1.Volume) { v.Spec.StorageParameters["policy"] = "lead" })
		}, "StoragePolicy lead, which does not exist"},
		{"invalid policy", func(m *fixture) {
			kubetest.Change(m.Cluster, &storagev1alpha1.StoragePolicy{ObjectMeta: kubetest.DPUObject("gold")}, func(p *storagev1alpha1.StoragePolicy) {
				p.Status = storagev1alpha1.StoragePolicyStatus{State: storagev1alpha1.StoragePolicyInvalid, Message: "StorageVendor z is missing"}
			})
		}, "StoragePolicy gold to become valid: StorageVendor z is missing"},
		{"no size", func(m *fixture) {
			m.edit(func(v *storagev1alpha1.Volume) { v.Spec.Request.CapacityRange.Request = nil })
		}, "capacityRange.request is missing"},
		{"foreign claim", func(m *fixture) {
			m.Add(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.DPUNamespace, Name: "v-pvc"}})
		}, "does not belong to this Volume"},
		{"claim going", func(m *fixture) {
			pvc(func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"kubernetes.io/pvc-protection"} })(m)
			m.Remove(&corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc")})
		}, "PersistentVolumeClaim v-pvc is being deleted"},
		{"claim lost", pvc(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.Status.Phase = "pv", corev1.ClaimLost
		}), "lost its PersistentVolume pv"},
		{"class waits for a pod", func(m *fixture) {
			kubetest.Change(m.Cluster, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "a-class"}}, func(s *storagev1.StorageClass) {
				s.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
			})
		}, "has to be Immediate"},
		{"class gone after the choice", func(m *fixture) {
			m.pass("v")
			m.Remove(kubetest.StorageClass("a"))
		}, "StorageClass a-class, which does not exist any more"},
		{"not a CSI volume", func(m *fixture) {
			m.pass("v")
			pv := kubetest.VendorPV("pv", "v-pvc", "", corev1.PersistentVolumeReclaimDelete)
			pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}
			m.Add(pv)
			m.bindTo("v-pvc", "pv")
		}, "is not a CSI volume"},
		{"a foreign PV", func(m *fixture) {
			m.pass("v")
			m.Add(kubetest.VendorPV("pv", "other-pvc", "a.csi", corev1.PersistentVolumeReclaimDelete))
			m.bindTo("v-pvc", "pv")
		}, "PersistentVolume pv does not belong to"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newFixture(t)
			m.Add(kubetest.Volume("v", "gold"))
			tc.world(m)
			m.settle("v")
			got := m.volume("v").Status
			if got.State != storagev1alpha1.VolumeInProgress || !strings.Contains(got.Message, tc.words) {
				t.Errorf("state %q, message %q, want %q in it", got.State, got.Message, tc.words)
			}
		})
	}
}

func TestAPolicyThatBecomesValidIsTaken(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.Volume("v", "late"))
	m.settle("v")
	m.Add(kubetest.StoragePolicy("late", "b"))
	m.settle("v")
	m.bind("v-pvc", "pv", corev1.PersistentVolumeReclaimDelete)
	m.settle("v")
	if s := m.volume("v"); s.Status.State != storagev1alpha1.VolumeAvailable || s.Status.Message != "" || s.Spec.Volume.StorageVendorName != "b" {
		t.Errorf("%+v", s.Status)
	}
}

// A valid policy whose vendor is missing is a cache that is behind: repeat.
func TestAVendorMissingUnderAValidPolicyIsAnError(t *testing.T) {
	m := newFixture(t)
	m.Remove(kubetest.StorageVendor("a"))
	m.Add(kubetest.Volume("v", "gold"))
	if _, err := m.try("v"); err == nil || !strings.Contains(err.Error(), "StorageVendor a") {
		t.Errorf("error %v", err)
	}
	if s := m.volume("v").Status; !strings.Contains(s.Message, "StorageVendor a") {
		t.Errorf("message %q", s.Message)
	}
}

// A second claim would be another, empty volume under the same name.
func TestALostClaimIsNotMadeAgain(t *testing.T) {
	m := newFixture(t)
	m.available("v", corev1.PersistentVolumeReclaimRetain)
	m.Remove(&corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc")})
	m.settle("v")
	if m.Has(&corev1.PersistentVolumeClaim{}, "v-pvc") {
		t.Error("a second claim was made")
	}
	if s := m.volume("v").Status; !strings.Contains(s.Message, "v-pvc is gone") {
		t.Errorf("message %q", s.Message)
	}
}

func (m *fixture) edit(change func(*storagev1alpha1.Volume)) {
	m.t.Helper()
	kubetest.Change(m.Cluster, &storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject("v")}, change)
}
