package volume

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

func ask(size string) func(*storagev1alpha1.DPUVolume) {
	return func(v *storagev1alpha1.DPUVolume) {
		v.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
}

// TestGrowth: the Volume is asked for more in place, and what becomes of it is
// told in a condition that was not there before.
func TestGrowth(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user(), kubetest.DPUStoragePolicy("policy"))
	w.MustReconcile(r, "vol")
	kubetest.Change(w.DPU, mirror(), available) // 2Gi
	w.MustReconcile(r, "vol")
	expanded := func() string {
		t.Helper()
		w.MustReconcile(r, "vol")
		v, _ := kubetest.Read(w.Host, user())
		if !meta.IsStatusConditionTrue(v.Status.Conditions, storagev1alpha1.ConditionReady) || v.Status.Phase != storagev1alpha1.DPUVolumeBound {
			t.Errorf("a volume that grows is no longer ready: %+v", v.Status.Conditions)
		}
		return kubetest.Conditions(v.Status.Conditions, storagev1alpha1.ConditionExpanded)[0]
	}
	if got := expanded(); strings.Contains(got, "=True") || strings.Contains(got, "=False") {
		t.Errorf("told of a volume that was not asked to grow: %s", got)
	}
	uid := func() string { m, _ := kubetest.Read(w.DPU, mirror()); return string(m.UID) }
	before := uid()
	size := func(n string) *resource.Quantity { q := resource.MustParse(n); return &q }
	for _, step := range []struct {
		name   string
		asked  string
		vendor func(*storagev1alpha1.Volume)
		want   string
	}{
		{"asked", "4Gi", nil, "Expanded=False/Pending: waiting for snap-controller in the DPU cluster"},
		{"waits", "4Gi", func(m *storagev1alpha1.Volume) {
			m.Status.Expansion = &storagev1alpha1.VolumeChange{Message: "the vendor is slow", Size: size("4Gi")}
		}, "Expanded=False/Pending: the vendor is slow"},
		{"refused", "4Gi", func(m *storagev1alpha1.Volume) {
			m.Status.Expansion = &storagev1alpha1.VolumeChange{Message: "no room", Refused: true, Size: size("4Gi")}
		}, "Expanded=False/Failure: no room"},
		{"taken back", "3Gi", nil, "Expanded=False/Pending: waiting for snap-controller in the DPU cluster"},
		{"grown", "3Gi", func(m *storagev1alpha1.Volume) {
			m.Status.Expansion, m.Spec.Volume.Capacity = nil, size("3Gi")
		}, "Expanded=True/Success"},
	} {
		kubetest.Change(w.Host, user(), ask(step.asked))
		if step.vendor != nil {
			kubetest.Change(w.DPU, mirror(), step.vendor)
		}
		if got := expanded(); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
		m, _ := kubetest.Read(w.DPU, mirror())
		if m.Spec.Request.CapacityRange.Request.Cmp(resource.MustParse(step.asked)) != 0 {
			t.Errorf("%s: the Volume asks for %s", step.name, m.Spec.Request.CapacityRange.Request)
		}
	}
	v, _ := kubetest.Read(w.Host, user())
	if have := v.Status.State.VolumeInfo.Capacity[corev1.ResourceStorage]; have.Cmp(resource.MustParse("3Gi")) != 0 {
		t.Errorf("the status tells of %s", have.String())
	}
	writes := w.Writes()
	w.MustReconcile(r, "vol")
	if w.Writes() != writes || uid() != before {
		t.Errorf("%d writes for nothing; the Volume was made anew: %t", w.Writes()-writes, uid() != before)
	}
}

// TestHealth: what is wrong with what the vendor has made is told in a condition
// that a sound volume does not have; the volume stays bound.
func TestHealth(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user(), kubetest.DPUStoragePolicy("policy"))
	w.MustReconcile(r, "vol")
	kubetest.Change(w.DPU, mirror(), available)
	for _, step := range []struct{ name, wrong, want string }{
		{"sound", "", "Healthy is missing"},
		{"gone", "the vendor's PersistentVolumeClaim vol-pvc is gone", "Healthy=False/Error: the vendor's PersistentVolumeClaim vol-pvc is gone"},
		{"back", "", "Healthy=True/Success"},
	} {
		kubetest.Change(w.DPU, mirror(), func(m *storagev1alpha1.Volume) { m.Status.Message = step.wrong })
		w.MustReconcile(r, "vol")
		v, _ := kubetest.Read(w.Host, user())
		if got := kubetest.Conditions(v.Status.Conditions, storagev1alpha1.ConditionHealthy)[0]; got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
		if v.Status.Phase != storagev1alpha1.DPUVolumeBound || !meta.IsStatusConditionTrue(v.Status.Conditions, storagev1alpha1.ConditionReady) {
			t.Errorf("%s: %s, %+v", step.name, v.Status.Phase, v.Status.Conditions)
		}
	}
}
