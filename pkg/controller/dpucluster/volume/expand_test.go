package volume_test

import (
	"strings"
	"testing"

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
