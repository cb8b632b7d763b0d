package endpoint

import (
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// Where a kubelet wants volumes (GetTargetPath in pkg/volume/csi/csi_mounter.go and getPublishPath in
// csi_block.go of Kubernetes 1.36): those with a file system have the path
// pods/POD/volumes/kubernetes.io~csi/VOLUME/mount, block devices
// plugins/kubernetes.io/csi/volumeDevices/publish/VOLUME/POD.
const (
	mounts    = "volumes/kubernetes.io~csi"
	mountName = "mount"
	publishes = "plugins/kubernetes.io/csi/volumeDevices/publish"
)

// Target is where a kubelet with that directory wants the volume of a PodStaging.
func Target(kubelet string, p *moorv1alpha1.PodStaging, mode corev1.PersistentVolumeMode) string {
	volume, pod := p.Spec.VolumeName, string(p.Spec.User.UID)
	if mode == corev1.PersistentVolumeBlock {
		return filepath.Join(kubelet, publishes, volume, pod)
	}
	return filepath.Join(kubelet, "pods", pod, mounts, volume, mountName)
}

// volumeOf is the name of the PersistentVolume in a target; "" if it is none of a kubelet.
func volumeOf(target string) string {
	above, last := filepath.Split(filepath.Clean(target))
	above, volume := filepath.Split(filepath.Clean(above))
	above = filepath.Clean(above)
	mounted := last == mountName && strings.HasSuffix(above, "/"+mounts)
	if !mounted && !strings.HasSuffix(above, "/"+publishes) || len(validation.IsDNS1123Subdomain(volume)) > 0 {
		return ""
	}
	return volume
}
