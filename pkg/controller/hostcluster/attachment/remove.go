package attachment

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/writer"
)

// remove deletes the VolumeAttachment, waits until it is gone, or until nothing
// but the vendor's plugin holds it, then lets the DPUVolumeAttachment go.
func (r *Reconciler) remove(ctx context.Context, attachment *storagev1alpha1.DPUVolumeAttachment) error {
	mirror := &storagev1alpha1.VolumeAttachment{}
	found, err := r.Clusters.OwnMirror(ctx, attachment, mirror)
	if err != nil {
		return err
	}
	if !found {
		return kube.RemoveFinalizers(ctx, r.Clusters.Host.Client, attachment, storagev1alpha1.FinalizerDPUVolumeAttachment)
	}
	if err := kube.Delete(ctx, r.Clusters.DPU.Client, mirror); err != nil {
		return err
	}
	if writer.Over(mirror) {
		ctrl.LoggerFrom(ctx).Info("let go while the vendor's plugin still has its device", daemon.KeyDPU, mirror.Spec.NodeName, daemon.KeyEpoch, mirror.Spec.Epoch)
		return kube.RemoveFinalizers(ctx, r.Clusters.Host.Client, attachment, storagev1alpha1.FinalizerDPUVolumeAttachment)
	}
	message := mirror.Status.Message
	if message == "" {
		message = fmt.Sprintf("waiting for DPU %s to withdraw the device and for the vendor to detach it", mirror.Spec.NodeName)
	}
	_, err = kube.PatchStatus(ctx, r.Clusters.Host.Client, attachment, func(a *storagev1alpha1.DPUVolumeAttachment) {
		detaching(a, message)
	})
	return kube.IgnoreNotFound(err)
}
