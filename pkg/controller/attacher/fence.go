package attacher

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/writer"
)

// toFence returns the SVVolumeAttachment, which has the same name, of a VolumeAttachment
// that asks for the storage's word about an epoch.
func toFence(_ context.Context, o client.Object) []reconcile.Request {
	a, ok := o.(*storagev1alpha1.VolumeAttachment)
	if !ok || writer.ToFence(a) == 0 {
		return nil
	}
	return []reconcile.Request{kube.RequestFor(a.Namespace, a.Name)}
}

// fence has the storage refuse all epochs that the VolumeAttachment says are over, and
// writes there that it does. Nothing is written without the driver's answer. What the
// attachment asks for is read from the API server: one that is gone asks for nothing.
func (r *Reconciler) fence(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment) error {
	handle := sv.Annotations[storagev1alpha1.AnnotationVolumeHandle]
	if !r.Features.Fence || handle == "" {
		return nil
	}
	a := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, r.DPU.Live, types.NamespacedName{Namespace: sv.Namespace, Name: sv.Name}, a)
	if err != nil {
		return fmt.Errorf("find out which epochs of volume %s are over: %w", volumeOf(sv), err)
	}
	epoch := int64(0)
	if found && a.Spec.NodeName == sv.Spec.NodeName {
		epoch = writer.ToFence(a)
	}
	if epoch == 0 {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	if err := r.Driver.Fence(bounded, handle, epoch); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("fenced", daemon.KeyAttachment, sv.Name, daemon.KeyVolume, volumeOf(sv), daemon.KeyEpoch, epoch)
	_, err = kube.PatchStatus(ctx, r.DPU.Client, a, func(a *storagev1alpha1.VolumeAttachment) {
		a.Status.Fence = &storagev1alpha1.StorageFence{AttachmentUID: a.UID, Epoch: epoch, Time: metav1.NewTime(r.Clock.Now())}
	})
	return kube.IgnoreNotFound(err)
}
