// Package podvolume knows how Kubernetes ties a pod to a volume (pod, claim,
// PersistentVolume, volume handle), and finds who uses a volume. It is the one
// place that does.
package podvolume

import (
	"crypto/sha256"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ClaimName is the name of the claim behind a volume of a pod, "" if there is
// none. The claim of a generic ephemeral volume is named "<pod>-<volume>" by
// Kubernetes.
func ClaimName(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// Claims are the claims of a pod, as "namespace/name".
func Claims(pod *corev1.Pod) []string {
	var out []string
	for i := range pod.Spec.Volumes {
		if name := ClaimName(pod, &pod.Spec.Volumes[i]); name != "" {
			out = append(out, pod.Namespace+"/"+name)
		}
	}
	return out
}

// Finished reports whether none of the pod's containers runs, or ever will.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Handle is the handle of a PersistentVolume of any CSI driver, "" if it has
// none.
func Handle(pv *corev1.PersistentVolume) string {
	if pv.Spec.CSI == nil {
		return ""
	}
	return pv.Spec.CSI.VolumeHandle
}

// AttachmentName is what Kubernetes calls the VolumeAttachment of a volume, by its
// handle, to a node (getAttachmentName in pkg/volume/csi/csi_attacher.go of
// Kubernetes; the kubelet finds it by that name).
func AttachmentName(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// HandleOf is the handle of a PersistentVolume of that CSI driver, "" if it is
// another's.
func HandleOf(driver string, pv *corev1.PersistentVolume) string {
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != driver {
		return ""
	}
	return pv.Spec.CSI.VolumeHandle
}

// BoundTo is the claim for which a PersistentVolume is, as "namespace/name",
// "" if there is none.
func BoundTo(pv *corev1.PersistentVolume) string {
	if pv.Spec.ClaimRef == nil {
		return ""
	}
	return pv.Spec.ClaimRef.Namespace + "/" + pv.Spec.ClaimRef.Name
}

// What a kubelet says of a pod that it then leaves alone for 10 to 15 s
// (FailedMountVolume in pkg/kubelet/events, SyncPod in pkg/kubelet/kubelet.go of
// Kubernetes 1.35). With another message it tries again at once.
const (
	ReasonFailedMount = "FailedMount"
	unableToMount     = "Unable to attach or mount volumes"
)

// BackedOff is the UID of the pod that a kubelet says it leaves alone; "" if the
// event says something else.
func BackedOff(e *corev1.Event) types.UID {
	if e.Reason != ReasonFailedMount || e.InvolvedObject.Kind != "Pod" || !strings.HasPrefix(e.Message, unableToMount) {
		return ""
	}
	return e.InvolvedObject.UID
}

// CachePods is how a cache holds pods: of all namespaces, with no more of them
// than is read.
func CachePods() map[client.Object]cache.ByObject { return everywhere(&corev1.Pod{}, Slim) }

// CacheClaims is how a cache holds claims: of all namespaces, with no more of
// them than is read.
func CacheClaims() map[client.Object]cache.ByObject {
	return everywhere(&corev1.PersistentVolumeClaim{}, SlimClaim)
}

func everywhere(kind client.Object, slim toolscache.TransformFunc) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{kind: {Namespaces: map[string]cache.Config{cache.AllNamespaces: {}}, Transform: slim}}
}

// SlimClaim is a cache transform that drops of a claim what is not read.
func SlimClaim(o any) (any, error) {
	if c, ok := o.(*corev1.PersistentVolumeClaim); ok {
		c.ManagedFields, c.Annotations, c.Labels = nil, nil, nil
	}
	return o, nil
}

// SlimPersistentVolume is a cache transform that leaves of a PersistentVolume what
// ties a volume to a claim.
func SlimPersistentVolume(o any) (any, error) {
	pv, ok := o.(*corev1.PersistentVolume)
	if !ok {
		return o, nil
	}
	out := &corev1.PersistentVolume{
		TypeMeta: pv.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion,
			CreationTimestamp: pv.CreationTimestamp, DeletionTimestamp: pv.DeletionTimestamp, Finalizers: pv.Finalizers,
		},
		Spec:   corev1.PersistentVolumeSpec{ClaimRef: pv.Spec.ClaimRef},
		Status: corev1.PersistentVolumeStatus{Phase: pv.Status.Phase},
	}
	if csi := pv.Spec.CSI; csi != nil {
		out.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: csi.Driver, VolumeHandle: csi.VolumeHandle}
	}
	return out, nil
}

// Slim is a cache transform that drops of a pod what this package, and the
// placement of pods, never reads.
func Slim(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	p.ManagedFields, p.Annotations = nil, nil
	p.Spec.Containers, p.Spec.InitContainers, p.Spec.EphemeralContainers = nil, nil, nil
	p.Status = corev1.PodStatus{Phase: p.Status.Phase}
	return p, nil
}
