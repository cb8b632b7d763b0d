package dpu

import storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"

// replica reports whether the attachment only keeps the volume ready here.
func replica(attachment *storagev1alpha1.VolumeAttachment) bool {
	return attachment.Spec.Role == storagev1alpha1.RoleReplica
}

// wantsAttached reports whether a replica is to be shown to its host: it may
// be where several hosts may have the volume at once.
func wantsAttached(attachment *storagev1alpha1.VolumeAttachment) bool {
	return attachment.Spec.Warmth == storagev1alpha1.WarmthAttached
}

// volumeName is the name of the attachment's Volume, "" if it names none.
func volumeName(attachment *storagev1alpha1.VolumeAttachment) string {
	if ref := attachment.Spec.Source.VolumeRef; ref != nil {
		return ref.Name
	}
	return ""
}
