package patrol

import (
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// differs reports whether what SNAP shows of an attachment is not what its status
// says.
func differs(a *storagev1alpha1.VolumeAttachment, shown exposures.Listing) bool {
	e, found := shown.Exposures[a.Status.DPU.DeviceName]
	return exposureDiffers(a, e, found, shown.Complete)
}

// exposureDiffers is differs for one exposure. complete is false if some SNAP
// service did not answer: then a device that is missing proves nothing.
func exposureDiffers(a *storagev1alpha1.VolumeAttachment, seen provisioner.Exposure, found, complete bool) bool {
	dpu := a.Status.DPU
	switch {
	case !a.DeletionTimestamp.IsZero() || dpu.DeviceName == "":
		return false // a pass is due anyway, or nothing was made
	case !found:
		return (dpu.Attached || dpu.PreEmulated) && complete
	case seen.Visible != dpu.Attached || seen.Hidden != dpu.PreEmulated:
		return true
	case !dpu.Attached && !dpu.PreEmulated:
		return false
	case dpu.FsdevAttrs != nil:
		return seen.PCIAddress != dpu.PCIDeviceAddress || seen.Tag != dpu.FsdevAttrs.FilesystemTag
	case dpu.BdevAttrs == nil:
		return true
	}
	return seen.PCIAddress != dpu.PCIDeviceAddress || seen.NamespaceID != dpu.BdevAttrs.NVMeNsID || seen.UUID != dpu.BdevAttrs.NVMeUUID
}
