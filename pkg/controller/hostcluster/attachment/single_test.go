package attachment

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/moor-storage/moor/internal/kube/kubetest"
)

func TestSingleWriter(t *testing.T) {
	for _, tc := range []struct {
		modes []corev1.PersistentVolumeAccessMode
		want  bool
	}{
		{[]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, true},
		{[]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}, true},
		{[]corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, false},
		{[]corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}, false},
		{[]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany}, false},
	} {
		if got := (&pass{volume: kubetest.DPUVolume("v", tc.modes...)}).single(); got != tc.want {
			t.Errorf("%v: %v", tc.modes, got)
		}
	}
}
