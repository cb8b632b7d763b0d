package endpoint

import (
	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kubelet"
)

// Target is where a kubelet with that directory wants the volume of a PodStaging.
func Target(root string, p *moorv1alpha1.PodStaging, mode corev1.PersistentVolumeMode) string {
	return kubelet.Target{Root: root, Volume: p.Spec.VolumeName, Pod: p.Spec.User.UID, Block: mode == corev1.PersistentVolumeBlock}.Path()
}
