// Package helper runs the pods that work for a PodVolume, a PodStaging or a PodRevocation: how one is recorded before
// it is made, made, seen, timed out, removed and known to be gone, and what is said of it. What a
// pod is for, and what follows from its end, is decided by those who use it.
package helper

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// Work is the object that pods work for.
type Work struct {
	// Object is the PodVolume, PodStaging or PodRevocation as it was read.
	Object client.Object
	// Kind of it.
	Kind string
	// Label is the key of the label by which its pods have its UID.
	Label string
}

// OfVolume is the work for a PodVolume.
func OfVolume(v *moorv1alpha1.PodVolume) Work {
	return Work{Object: v, Kind: "PodVolume", Label: moorv1alpha1.LabelPodVolume}
}

// OfStaging is the work for a PodStaging.
func OfStaging(s *moorv1alpha1.PodStaging) Work {
	return Work{Object: s, Kind: "PodStaging", Label: moorv1alpha1.LabelPodStaging}
}

// OfRevocation is the work for a PodRevocation.
func OfRevocation(r *moorv1alpha1.PodRevocation) Work {
	return Work{Object: r, Kind: "PodRevocation", Label: moorv1alpha1.LabelPodRevocation}
}

// owner is what the pods go with. It does not hold the object up: that waits for its pods by itself.
func (w Work) owner() metav1.OwnerReference {
	yes, no := true, false
	return metav1.OwnerReference{
		APIVersion: moorv1alpha1.GroupVersion.String(), Kind: w.Kind, Name: w.Object.GetName(), UID: w.Object.GetUID(),
		Controller: &yes, BlockOwnerDeletion: &no,
	}
}

// owns reports whether a pod was made for this work.
func (w Work) owns(pod *corev1.Pod) bool {
	return pod.Labels[w.Label] == string(w.Object.GetUID()) && metav1.IsControlledBy(pod, w.Object)
}

// Record is what a status says of a pod of a template before it is made.
func Record(t *corev1.PodTemplateSpec, name string, now time.Time) *moorv1alpha1.HelperPod {
	return &moorv1alpha1.HelperPod{Namespace: pods.Namespace(t), Name: name, Since: metav1.NewTime(now.Truncate(time.Second))}
}

// ProvisionerFrom is from where the provisioner is read. Who asks for another try may have mended
// it just before; so may who did when a pod was recorded that is still to be made.
func ProvisionerFrom(c kube.Cluster, retries bool, record *moorv1alpha1.HelperPod, seen Seen) client.Reader {
	if retries || record != nil && seen.Pod == nil {
		return c.Live
	}
	return c.Client
}

// Short is a short name for a text, of letters and digits.
func Short(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// Is reports whether a status records the pod of this name.
func Is(pod *moorv1alpha1.HelperPod, name string) bool { return pod != nil && pod.Name == name }

// Key is where the pod of a record is.
func Key(pod *moorv1alpha1.HelperPod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
