package dpf

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// By which fields the cache finds objects. The names are this package's own: a
// cache has each only once, and others share it.
const (
	indexVolume = "dpf.volume"
	indexGroup  = "dpf.group"
)

// attachmentIndex finds the attachments of a volume.
func attachmentIndex() kube.Index {
	return kube.IndexOf(indexVolume, func(o *storagev1alpha1.DPUVolumeAttachment) []string {
		return kube.Some(o.Spec.DPUVolumeName)
	})
}

// snapshotIndex finds the snapshots of a group.
func snapshotIndex() kube.Index {
	return kube.IndexOf(indexGroup, func(o *moorv1alpha1.DPUVolumeSnapshot) []string {
		if o.Spec.Group == nil {
			return nil
		}
		return []string{o.Spec.Group.Name}
	})
}

// attachmentsOf lists the attachments of a volume, replicas too. They are the
// cache's own: nobody may change them.
func attachmentsOf(ctx context.Context, o Options, volumeID string) ([]storagev1alpha1.DPUVolumeAttachment, error) {
	var list storagev1alpha1.DPUVolumeAttachmentList
	err := o.Client.List(ctx, &list, client.InNamespace(o.Namespace), client.MatchingFields{indexVolume: volumeID}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, refused("list the attachments of volume "+volumeID, err)
	}
	return list.Items, nil
}
