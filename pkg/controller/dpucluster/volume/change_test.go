package volume_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

func storageOf(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// asks has an available volume, of 1536Mi, ask for more.
func (m *fixture) asks(size string) {
	m.t.Helper()
	kubetest.Change(m.Cluster, &storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject("v")}, func(v *storagev1alpha1.Volume) {
		v.Spec.Request.CapacityRange.Request = ptr.To(resource.MustParse(size))
	})
}

func (m *fixture) allowGrowth(allow bool) {
	m.t.Helper()
	kubetest.Change(m.Cluster, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "a-class"}}, func(s *storagev1.StorageClass) { s.AllowVolumeExpansion = &allow })
}

func (m *fixture) claimAsks() string {
	m.t.Helper()
	pvc := &corev1.PersistentVolumeClaim{}
	m.Get(pvc, "v-pvc")
	q := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	return q.String()
}

// TestGrowth: the claim is asked for more, and the PersistentVolume tells when
// the vendor has given it. The volume is Available all the time.
func TestGrowth(t *testing.T) {
	m := newFixture(t)
	m.allowGrowth(true)
	m.available("v", corev1.PersistentVolumeReclaimDelete)
	m.asks("3Gi")
	m.settle("v")
	v := m.volume("v")
	if m.claimAsks() != "3Gi" || v.Status.State != storagev1alpha1.VolumeAvailable || v.Status.Message != "" {
		t.Fatalf("the claim asks for %s, the volume is %+v", m.claimAsks(), v.Status)
	}
	if e := v.Status.Expansion; e == nil || e.Refused || e.Size.String() != "3Gi" || !strings.Contains(e.Message, "csi-resizer") {
		t.Fatalf("expansion %+v", e)
	}
	kubetest.Change(m.Cluster, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-v"}}, func(pv *corev1.PersistentVolume) { pv.Spec.Capacity = storageOf("3Gi") })
	m.settle("v")
	if v = m.volume("v"); v.Status.Expansion != nil || v.Spec.Volume.Capacity.String() != "3Gi" {
		t.Fatalf("capacity %s, expansion %+v", v.Spec.Volume.Capacity, v.Status.Expansion)
	}
}

// TestGrowthRefused: a class that does not allow it, and a vendor that says no
// for good; either may come round.
func TestGrowthRefused(t *testing.T) {
	m := newFixture(t)
	m.available("v", corev1.PersistentVolumeReclaimDelete)
	m.asks("3Gi")
	m.settle("v")
	wants := func(refused bool, words string) {
		t.Helper()
		m.settle("v")
		v := m.volume("v")
		if e := v.Status.Expansion; e == nil || e.Refused != refused || !strings.Contains(e.Message, words) || v.Status.State != storagev1alpha1.VolumeAvailable {
			t.Errorf("expansion %+v, want refused %t and %q", e, refused, words)
		}
	}
	wants(true, "StorageClass a-class in the DPU cluster has no allowVolumeExpansion: true")
	if m.claimAsks() != "1Gi" {
		t.Errorf("the claim asks for %s", m.claimAsks())
	}
	m.allowGrowth(true)
	wants(false, "waiting for the vendor")
	failed := func(status corev1.ClaimResourceStatus) {
		kubetest.Change(m.Cluster, &corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc")}, func(c *corev1.PersistentVolumeClaim) {
			c.Status.AllocatedResources = storageOf("3Gi")
			c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: status}
			c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
				Type: corev1.PersistentVolumeClaimControllerResizeError, Status: corev1.ConditionTrue, Message: "the array says no",
			}}
		})
	}
	failed(corev1.PersistentVolumeClaimControllerResizeInProgress)
	wants(false, "the array says no")
	failed(corev1.PersistentVolumeClaimControllerResizeInfeasible)
	wants(true, "the array says no")
	m.asks("2Gi") // what was refused is taken back
	wants(false, "waiting for the vendor")
	if m.claimAsks() != "2Gi" {
		t.Errorf("the claim asks for %s", m.claimAsks())
	}
}

// wantsParameters has the volume ask for mutable parameters, and settles.
func (m *fixture) wantsParameters(parameters map[string]string) *storagev1alpha1.Volume {
	m.t.Helper()
	kubetest.Change(m.Cluster, &storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject("v")}, func(v *storagev1alpha1.Volume) { v.Spec.Request.MutableParameters = parameters })
	m.settle("v")
	return m.volume("v")
}

// classes are the VolumeAttributesClasses there are.
func (m *fixture) classes() []storagev1.VolumeAttributesClass {
	m.t.Helper()
	list := &storagev1.VolumeAttributesClassList{}
	if err := m.Live.List(m.t.Context(), list); err != nil {
		m.t.Fatal(err)
	}
	return list.Items
}

// modifies plays the vendor, who puts into effect what the claim names.
func (m *fixture) modifies() {
	m.t.Helper()
	kubetest.Change(m.Cluster, &corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc")}, func(c *corev1.PersistentVolumeClaim) {
		c.Status.CurrentVolumeAttributesClassName = c.Spec.VolumeAttributesClassName
	})
	m.settle("v")
}

// TestModification: each set of parameters is a class as long as a volume has it.
func TestModification(t *testing.T) {
	m := newFixture(t)
	m.available("v", corev1.PersistentVolumeReclaimDelete)
	if n := len(m.classes()); n != 0 {
		t.Fatalf("%d classes for a volume that asked for none", n)
	}
	for _, want := range []map[string]string{{"iops": "100"}, {"iops": "200", "bytesPerSecond": "0"}} {
		v := m.wantsParameters(want)
		if c := v.Status.Modification; c == nil || c.Refused || !strings.Contains(c.Message, "csi-resizer") || v.Status.State != storagev1alpha1.VolumeAvailable {
			t.Fatalf("modification %+v of %+v", c, v.Status)
		}
		m.modifies()
		v, all := m.volume("v"), m.classes()
		if v.Status.Modification != nil || len(all) != 1 || all[0].DriverName != "a.csi" {
			t.Fatalf("modification %+v, classes %+v", v.Status.Modification, all)
		}
		if diff := cmp.Diff(want, v.Spec.Volume.MutableParameters) + cmp.Diff(want, all[0].Parameters); diff != "" {
			t.Fatal(diff)
		}
	}
	before := m.Writes()
	m.pass("v")
	if m.Writes() != before {
		t.Error("a pass over a volume that has what it asks for writes")
	}
	if c := m.wantsParameters(nil).Status.Modification; c == nil || !c.Refused || !strings.Contains(c.Message, "cannot be taken back") {
		t.Errorf("%+v", c)
	}
}

// TestModificationRefused: what the vendor refuses can be taken back.
func TestModificationRefused(t *testing.T) {
	m := newFixture(t)
	m.available("v", corev1.PersistentVolumeReclaimDelete)
	m.wantsParameters(map[string]string{"iops": "100"})
	m.modifies()
	m.wantsParameters(map[string]string{"iops": "100", "color": "red"})
	kubetest.Change(m.Cluster, &corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc")}, func(c *corev1.PersistentVolumeClaim) {
		c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{
			TargetVolumeAttributesClassName: *c.Spec.VolumeAttributesClassName, Status: corev1.PersistentVolumeClaimModifyVolumeInfeasible,
		}
		c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
			Type: corev1.PersistentVolumeClaimVolumeModifyVolumeError, Status: corev1.ConditionTrue, Message: "no such color",
		}}
	})
	m.settle("v")
	if c := m.volume("v").Status.Modification; c == nil || !c.Refused || !strings.Contains(c.Message, "no such color") {
		t.Fatalf("%+v", c)
	}
	v := m.wantsParameters(map[string]string{"iops": "100"})
	if v.Status.Modification != nil || v.Spec.Volume.MutableParameters["iops"] != "100" {
		t.Errorf("taken back: %+v", v.Status.Modification)
	}
}

// TestModificationOfAClassThatIsNotFound: csi-resizer looks for a class once, and again
// only when the claim names another. It may have looked before it heard of the class, or
// in the moment in which the class was removed as unused.
func TestModificationOfAClassThatIsNotFound(t *testing.T) {
	m := newFixture(t)
	m.available("v", corev1.PersistentVolumeReclaimDelete)
	want := map[string]string{"iops": "100"}
	m.wantsParameters(want)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc")}
	names := func() string {
		m.Get(claim, claim.Name)
		return *claim.Spec.VolumeAttributesClassName
	}
	passes := func(d time.Duration) { m.Clock.SetTime(m.Clock.Now().Add(d)) }
	first := names()
	kubetest.Change(m.Cluster, claim, func(c *corev1.PersistentVolumeClaim) {
		c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{Status: corev1.PersistentVolumeClaimModifyVolumePending}
	})
	before := m.Writes()
	passes(500 * time.Millisecond)
	if again := m.pass("v").RequeueAfter; again != 1500*time.Millisecond || names() != first {
		t.Fatalf("again after %s; the claim names %s, at first %s", again, names(), first)
	}
	if c := m.volume("v").Status.Modification; c == nil || !strings.Contains(c.Message, "did not find VolumeAttributesClass "+first) {
		t.Errorf("modification %+v", c)
	}
	m.pass("v")
	if n := m.Writes() - before; n != 1 { // the message
		t.Errorf("%d writes while the vendor is waited for", n)
	}
	seen := map[string]bool{first: true}
	for turn := range 4 { // it is never found: each name in turn, never two at once
		m.Remove(&storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: names()}})
		passes(1500 * time.Millisecond)
		was := names()
		m.settle("v")
		if names() == was {
			t.Fatalf("turn %d: the claim still names %s", turn, was)
		}
		class := &storagev1.VolumeAttributesClass{}
		m.Get(class, names())
		if diff := cmp.Diff(want, class.Parameters); diff != "" {
			t.Fatal(diff)
		}
		seen[names()] = true
		passes(500 * time.Millisecond)
		m.settle("v")
		if names() == was {
			t.Fatalf("turn %d: another name before the vendor can have looked", turn)
		}
	}
	if len(seen) != 2 {
		t.Errorf("%d names: %v", len(seen), seen)
	}
	kubetest.Change(m.Cluster, claim, func(c *corev1.PersistentVolumeClaim) { c.Status.ModifyVolumeStatus = nil })
	m.modifies()
	if v := m.volume("v"); v.Status.Modification != nil || v.Spec.Volume.MutableParameters["iops"] != "100" {
		t.Errorf("found: %+v", v.Status.Modification)
	}
	if again := m.pass("v").RequeueAfter; again != 0 {
		t.Errorf("a volume that has what it asks for is looked at again after %s", again)
	}
}

// TestMadeWithParameters: the claim names the class as soon as it is bound.
func TestMadeWithParameters(t *testing.T) {
	m := newFixture(t)
	v := kubetest.Volume("v", "gold")
	v.Spec.Request.MutableParameters = map[string]string{"iops": "100"}
	m.Add(v)
	m.pass("v")
	m.bind("v-pvc", "pv-v", corev1.PersistentVolumeReclaimDelete)
	m.settle("v")
	m.modifies()
	if got := m.volume("v"); got.Spec.Volume.MutableParameters["iops"] != "100" || len(m.classes()) != 1 || got.Status.State != storagev1alpha1.VolumeAvailable {
		t.Fatalf("%+v, %d classes", got.Spec.Volume, len(m.classes()))
	}
	m.Remove(&storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject("v")})
	m.settle("v")
	m.Remove(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-v"}})
	m.settle("v")
	if n := len(m.classes()); n != 0 {
		t.Errorf("%d classes are left behind", n)
	}
}
