package attachments

import (
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// VolumeName is the name of the attachment's Volume, "" if it names none.
func VolumeName(a *storagev1alpha1.VolumeAttachment) string {
	if ref := a.Spec.Source.VolumeRef; ref != nil {
		return ref.Name
	}
	return ""
}

// VolumeID is what a vendor's plugin calls a volume: the name of the vendor's
// PersistentVolumeClaim.
func VolumeID(volume string) string { return kube.PVCName(volume) }

// Replica reports whether the attachment only keeps the volume ready here.
func Replica(a *storagev1alpha1.VolumeAttachment) bool {
	return a.Spec.Role == storagev1alpha1.RoleReplica
}
