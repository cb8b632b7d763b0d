package attachment

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
)

// Index finds the attachments of a volume. The replica reconciler looks by it too.
func Index() kube.Index { return index.AttachmentByVolume() }

// All lists the attachments of a volume, replicas too. They are the
// cache's own: they must not be changed.
func All(ctx context.Context, o request.Options, volumeID string) ([]storagev1alpha1.DPUVolumeAttachment, error) {
	var list storagev1alpha1.DPUVolumeAttachmentList
	err := o.Client.List(ctx, &list, client.InNamespace(o.Namespace), client.MatchingFields{index.DPUVolumeAttachmentByVolume: volumeID}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, request.Refused("list the attachments of volume "+volumeID, err)
	}
	return list.Items, nil
}

// Shown reports whether the DPU shows the device to its host.
func Shown(o *storagev1alpha1.DPUVolumeAttachment) bool {
	return o.Status.DPUAttached != nil && *o.Status.DPUAttached
}

// TakenAway reports whether the attachment stands while what was made for it in the
// DPU cluster is going: a fence took the volume away. It comes back only once
// the attachment was given back.
func TakenAway(o *storagev1alpha1.DPUVolumeAttachment) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, storagev1alpha1.ConditionDPUVolumeAttachmentReconciled)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == storagev1alpha1.ReasonAwaitingDeletion
}

// InUse reports whether a node uses the volume through the attachment: it is no
// replica, and not on its way out.
func InUse(o *storagev1alpha1.DPUVolumeAttachment) bool {
	return o.Spec.Role != storagev1alpha1.RoleReplica && o.DeletionTimestamp.IsZero()
}

// Users lists the attachments through which nodes use the volume.
func Users(ctx context.Context, o request.Options, volumeID string) ([]storagev1alpha1.DPUVolumeAttachment, error) {
	all, err := All(ctx, o, volumeID)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(i storagev1alpha1.DPUVolumeAttachment) bool { return !InUse(&i) }), nil
}
