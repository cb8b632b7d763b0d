package volume

import (
	"testing"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSameRequest(t *testing.T) {
	request := func() storagev1alpha1.DPUVolumeSpec {
		mode := corev1.PersistentVolumeBlock
		return storagev1alpha1.DPUVolumeSpec{
			DPUStoragePolicyName: "p", Parameters: map[string]string{"a": "1"}, VolumeMode: &mode,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*storagev1alpha1.DPUVolumeSpec)
		want   bool
	}{
		{"same", func(*storagev1alpha1.DPUVolumeSpec) {}, true},
		{"other size", func(s *storagev1alpha1.DPUVolumeSpec) {
			s.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
		}, true},
		{"other policy", func(s *storagev1alpha1.DPUVolumeSpec) { s.DPUStoragePolicyName = "q" }, false},
		{"other parameter", func(s *storagev1alpha1.DPUVolumeSpec) { s.Parameters["a"] = "2" }, false},
		{"one parameter more", func(s *storagev1alpha1.DPUVolumeSpec) { s.Parameters["b"] = "" }, false},
		{"no parameters", func(s *storagev1alpha1.DPUVolumeSpec) { s.Parameters = nil }, false},
		{"other mode", func(s *storagev1alpha1.DPUVolumeSpec) { *s.VolumeMode = corev1.PersistentVolumeFilesystem }, false},
		{"other access", func(s *storagev1alpha1.DPUVolumeSpec) { s.AccessModes[0] = corev1.ReadWriteMany }, false},
		{"more access", func(s *storagev1alpha1.DPUVolumeSpec) { s.AccessModes = append(s.AccessModes, corev1.ReadOnlyMany) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := request()
			tc.change(&b)
			if got := sameRequest(request(), b); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if got := sameRequest(b, request()); got != tc.want {
				t.Errorf("the other way round: got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestFits(t *testing.T) {
	for _, tc := range []struct {
		size, least, most int64
		want              bool
	}{
		{5, 0, 0, true}, {5, 5, 0, true}, {5, 5, 5, true}, {5, 6, 0, false}, {5, 1, 4, false}, {5, 1, 9, true},
	} {
		if got := fits(tc.size, provisioner.VolumeSpec{CapacityBytes: tc.least, LimitBytes: tc.most}); got != tc.want {
			t.Errorf("%d in %d..%d: %v", tc.size, tc.least, tc.most, got)
		}
	}
}

func TestUnbegun(t *testing.T) {
	now := metav1.Now()
	for name, c := range map[string]struct {
		change func(*storagev1alpha1.DPUVolume)
		want   bool
	}{
		"nothing was looked at": {func(*storagev1alpha1.DPUVolume) {}, true},
		"no vendor yet":         {func(v *storagev1alpha1.DPUVolume) { v.Status.Conditions = scheduled(metav1.ConditionFalse) }, true},
		"a vendor was chosen":   {func(v *storagev1alpha1.DPUVolume) { v.Status.Conditions = scheduled(metav1.ConditionTrue) }, false},
		"bound":                 {func(v *storagev1alpha1.DPUVolume) { v.Status.Phase = storagev1alpha1.DPUVolumeBound }, false},
		"being deleted":         {func(v *storagev1alpha1.DPUVolume) { v.DeletionTimestamp = &now }, false},
		"another of that name":  {func(v *storagev1alpha1.DPUVolume) { v.UID = "other" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := &storagev1alpha1.DPUVolume{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}
			c.change(v)
			if got := notStarted(v, "uid"); got != c.want {
				t.Errorf("unbegun is %t, want %t", got, c.want)
			}
		})
	}
}

func scheduled(status metav1.ConditionStatus) []metav1.Condition {
	return []metav1.Condition{{Type: storagev1alpha1.ConditionScheduled, Status: status}}
}
