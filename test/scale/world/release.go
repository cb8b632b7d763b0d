package world

import (
	"context"
	"fmt"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/test/scale/fleet"
)

// attacherFinalizer is csi-attacher's.
const attacherFinalizer = "external-attacher/csi-snap-nvidia-com"

// Release plays csi-attacher until ctx ends, as far as it detaches: the volume of each
// VolumeAttachment that is deleted is given back.
func (u *User) Release(ctx context.Context) error {
	return fleet.Serve(ctx, u.release, func(ctx context.Context, q fleet.Queue) error {
		return fleet.Follow(ctx, u.Clusters.Unlimited.Host, &storagev1.VolumeAttachmentList{}, func(o client.Object) {
			if !o.GetDeletionTimestamp().IsZero() {
				q.Add(client.ObjectKeyFromObject(o))
			}
		})
	})
}

func (u *User) release(ctx context.Context, key types.NamespacedName) error {
	c, a := u.Clusters.Unlimited.Host, &storagev1.VolumeAttachment{}
	found, err := kube.Find(ctx, c, key, a)
	if err != nil || !found || a.DeletionTimestamp.IsZero() || a.Spec.Source.PersistentVolumeName == nil {
		return err
	}
	pv := &corev1.PersistentVolume{}
	if err := c.Get(ctx, client.ObjectKey{Name: *a.Spec.Source.PersistentVolumeName}, pv); err != nil {
		return fmt.Errorf("find the volume of VolumeAttachment %s: %w", a.Name, err)
	}
	if _, err := u.Driver.ControllerUnpublishVolume(ctx, &csispec.ControllerUnpublishVolumeRequest{VolumeId: pv.Spec.CSI.VolumeHandle, NodeId: a.Spec.NodeName}); err != nil {
		return fmt.Errorf("detach %s from %s: %w", pv.Spec.CSI.VolumeHandle, a.Spec.NodeName, err)
	}
	return kube.RemoveFinalizers(ctx, c, a, attacherFinalizer)
}
