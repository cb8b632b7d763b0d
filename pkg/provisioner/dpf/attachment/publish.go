package attachment

import (
	"fmt"
	"maps"
	"strconv"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Publish is the publish context of a shown attachment; the vendor's metadata
// must not take one of the names that are ours.
func Publish(o *storagev1alpha1.DPUVolumeAttachment) (provisioner.Attachment, error) {
	context := maps.Clone(o.Status.AttachmentMetadata)
	if context == nil {
		context = map[string]string{}
	}
	ours := map[string]string{storagev1alpha1.PublishContextVolume: o.Spec.DPUVolumeName, storagev1alpha1.PublishContextAttachment: o.Name}
	if dpu := o.Status.DPU; dpu != nil {
		ours[storagev1alpha1.PublishContextPCIAddress] = dpu.PCIAddress
		if dpu.FuncVUID != "" {
			ours[storagev1alpha1.PublishContextVUID] = dpu.FuncVUID
		}
		if dpu.VirtioFSAttrs != nil {
			ours[storagev1alpha1.PublishContextTag] = dpu.VirtioFSAttrs.FilesystemTag
		}
		if dpu.NVMeAttrs != nil {
			ours[storagev1alpha1.PublishContextNamespaceID] = strconv.FormatInt(dpu.NVMeAttrs.NamespaceID, 10)
			if id := dpu.NVMeAttrs.NamespaceUUID; id != "" {
				ours[storagev1alpha1.PublishContextUUID] = id
			}
		}
	}
	for key, value := range ours {
		if _, taken := context[key]; taken {
			return provisioner.Attachment{}, fmt.Errorf("attachment %s: the vendor's metadata uses the reserved name %s", o.Name, key)
		}
		context[key] = value
	}
	return provisioner.Attachment{PublishContext: context}, nil
}
