package attachments

import "github.com/moor-storage/moor/internal/kube"

// VolumeID is what a vendor's plugin calls a volume: the name of the vendor's
// PersistentVolumeClaim.
func VolumeID(volume string) string { return kube.PVCName(volume) }
