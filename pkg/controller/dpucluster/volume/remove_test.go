package volume_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

func (m *fixture) exists() bool { return m.Has(&storagev1alpha1.Volume{}, "v") }

func (m *fixture) delete() {
	m.t.Helper()
	m.Remove(&storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject("v")})
}

func (m *fixture) wantMessage(words string) {
	m.t.Helper()
	if s := m.volume("v").Status; !strings.Contains(s.Message, words) {
		m.t.Errorf("message %q, want %q in it", s.Message, words)
	}
}

func TestDeletionInOrder(t *testing.T) {
	m := newFixture(t)
	m.available("v", corev1.PersistentVolumeReclaimDelete)
	kubetest.Change(m.Cluster, &corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc")}, func(c *corev1.PersistentVolumeClaim) {
		c.Finalizers = []string{"kubernetes.io/pvc-protection"}
	})
	m.Add(kubetest.VolumeAttachment("n2-v", "v", "n2"), kubetest.VolumeAttachment("n1-v", "v", "n1"), kubetest.VolumeAttachment("n1-w", "w", "n1"))
	m.delete()
	m.settle("v")
	m.wantMessage("waiting for VolumeAttachment n1-v, n2-v")
	pvc := &corev1.PersistentVolumeClaim{}
	m.Get(pvc, "v-pvc")
	if pvc.DeletionTimestamp != nil {
		t.Fatal("the claim goes while the volume is attached")
	}
	m.Remove(kubetest.VolumeAttachment("n1-v", "v", "n1"), kubetest.VolumeAttachment("n2-v", "v", "n2"))
	m.settle("v")
	m.wantMessage("PersistentVolumeClaim v-pvc to go")
	m.Get(pvc, "v-pvc")
	if pvc.DeletionTimestamp == nil {
		t.Fatal("the claim was not deleted")
	}
	kubetest.Change(m.Cluster, pvc, func(c *corev1.PersistentVolumeClaim) { c.Finalizers = nil })
	m.settle("v")
	m.wantMessage("delete PersistentVolume pv-v")
	kubetest.Change(m.Cluster, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-v"}}, func(pv *corev1.PersistentVolume) {
		pv.Status.Phase, pv.Status.Message = corev1.VolumeFailed, "array 7 is offline"
	})
	m.settle("v")
	m.wantMessage("array 7 is offline")
	m.Remove(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-v"}})
	m.pass("v")
	if m.exists() {
		t.Error("the Volume is still there")
	}
}

func TestDeletionWithNothingToWaitFor(t *testing.T) {
	for _, tc := range []struct {
		name  string
		world func(m *fixture)
	}{
		{"never seen", func(*fixture) {}},
		{"waits for its policy", func(m *fixture) {
			m.Remove(kubetest.StoragePolicy("gold"))
			m.settle("v")
		}},
		{"placed, but its claim was never made", func(m *fixture) {
			m.LoseWrite(2, false)
			_, _ = m.try("v")
		}},
		{"retained volume", func(m *fixture) {
			m.pass("v")
			m.bind("v-pvc", "pv", corev1.PersistentVolumeReclaimRetain)
			m.settle("v")
		}},
		{"foreign claim", func(m *fixture) {
			m.Add(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.DPUNamespace, Name: "v-pvc"}})
			m.settle("v")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newFixture(t)
			m.Add(kubetest.Volume("v", "gold"))
			tc.world(m)
			m.delete()
			m.settle("v")
			if m.exists() {
				t.Errorf("still there: %+v", m.volume("v").Status)
			}
			foreign := &corev1.PersistentVolumeClaim{}
			if tc.name == "foreign claim" && !m.Has(foreign, "v-pvc") {
				t.Error("a foreign claim was deleted")
			}
		})
	}
}

// A claim made a moment ago, which the cache does not show, is not forgotten.
func TestDeletionAsksTheServerForTheClaim(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.Volume("v", "gold"))
	m.pass("v")
	m.delete()
	m.CacheHides(&corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc")})
	m.pass("v")
	if !m.exists() || m.Has(&corev1.PersistentVolumeClaim{}, "v-pvc") {
		t.Fatal("want the claim deleted first, the Volume still there")
	}
	m.pass("v")
	if m.exists() {
		t.Error("the Volume is still there")
	}
}

// What stays with the vendor is told of, once, by its name.
func TestDeletionTellsOfWhatIsKept(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.Volume("v", "gold"))
	m.pass("v")
	m.bind("v-pvc", "pv", corev1.PersistentVolumeReclaimRetain)
	m.settle("v")
	if told := m.Events(); len(told) > 0 {
		t.Fatalf("told of a volume that is there: %q", told)
	}
	m.delete()
	m.settle("v")
	want := "Warning VolumeRetained the Volume is deleted, and the vendor keeps its data, as the reclaimPolicy is Retain: delete PersistentVolume pv, and the data at the vendor, when it is not wanted any more"
	if told := m.Events(); m.exists() || len(told) != 1 || told[0] != want {
		t.Errorf("told: %q\nwant: %q", told, want)
	}
}

func TestForeignFinalizersAreLeftAlone(t *testing.T) {
	m := newFixture(t)
	v := kubetest.Volume("v", "gold")
	v.Finalizers = []string{"example.com/other"}
	m.Add(v)
	m.pass("v")
	m.delete()
	m.settle("v")
	if f := m.volume("v").Finalizers; len(f) != 1 || f[0] != "example.com/other" {
		t.Errorf("finalizers %v", f)
	}
}

// Every write of a whole life is lost once; a repeat has to bring the same end.
func TestALostWriteChangesNothing(t *testing.T) {
	for lost := 1; ; lost++ {
		m := newFixture(t)
		m.Add(kubetest.Volume("v", "gold"))
		m.LoseWrite(lost, false)
		m.settle("v")
		m.bind("v-pvc", "pv", corev1.PersistentVolumeReclaimRetain)
		m.settle("v")
		if v := m.volume("v"); v.Status.State != storagev1alpha1.VolumeAvailable || v.Spec.Volume.ID != "Volume-v-1" || v.Spec.Volume.StorageVendorName != "a" {
			t.Fatalf("write %d lost: %+v", lost, v)
		}
		m.delete()
		m.settle("v")
		if m.exists() || m.Has(&corev1.PersistentVolumeClaim{}, "v-pvc") {
			t.Fatalf("write %d lost: something is left", lost)
		}
		if m.Writes() < lost {
			if lost < 6 {
				t.Fatalf("only %d writes in a whole life: the test tests nothing", lost)
			}
			return
		}
	}
}
