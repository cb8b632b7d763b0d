package podvolume

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Returns reports whether a pod comes back by itself if it is deleted: a controller makes it
// anew. A pod of a cache may lack what tells that.
func Returns(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && owner.Kind != "Node" // that of the copy of a static pod
}
