// Package podvolume knows how Kubernetes ties a pod to a volume (pod, claim,
// PersistentVolume, volume handle), and finds who uses a volume. It is the one
// place that does.
package podvolume

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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

// HandleOf is the handle of a PersistentVolume of one of these CSI drivers, "" if
// it is another's.
func HandleOf(pv *corev1.PersistentVolume, drivers ...string) string {
	if pv.Spec.CSI == nil || !slices.Contains(drivers, pv.Spec.CSI.Driver) {
		return ""
	}
	return pv.Spec.CSI.VolumeHandle
}

// DefaultDriver is the name that DPF gives the CSI driver of its block volumes.
const DefaultDriver = "csi.snap.nvidia.com"

// driverName is what Kubernetes takes as the name of a CSI driver (ValidateCSIDriverName
// in pkg/apis/storage/validation of Kubernetes).
var driverName = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9.]{0,61}[a-zA-Z0-9])?$`)

// ValidDrivers says what is wrong with a list of CSI drivers' names: with a name that
// matches no driver, pods would be left on dead hosts without a word.
func ValidDrivers(names []string) error {
	if len(names) == 0 {
		return errors.New("no CSI driver is named")
	}
	for _, name := range names {
		if !driverName.MatchString(name) {
			return fmt.Errorf("%q is not the name of a CSI driver: letters, digits, - and . are possible, 63 of them at most", name)
		}
	}
	return nil
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
