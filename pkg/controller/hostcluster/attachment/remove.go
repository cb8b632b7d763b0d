package attachment

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
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
	if over(mirror) {
		ctrl.LoggerFrom(ctx).Info("let go while the vendor's plugin still has its device", daemon.KeyDPU, mirror.Spec.NodeName, daemon.KeyEpoch, mirror.Spec.Epoch)
		return kube.RemoveFinalizers(ctx, r.Clusters.Host.Client, attachment, storagev1alpha1.FinalizerDPUVolumeAttachment)
	}
	words := mirror.Status.Message
	if words == "" {
		words = fmt.Sprintf("waiting for DPU %s to withdraw the device and for the vendor to detach it", mirror.Spec.NodeName)
	}
	_, err = kube.PatchStatus(ctx, r.Clusters.Host.Client, attachment, func(a *storagev1alpha1.DPUVolumeAttachment) {
		detaching(a, words)
	})
	return client.IgnoreNotFound(err)
}

// over reports whether nothing of the mirror concerns the host cluster any more:
// its DPU has retired its epoch, the claim was freed, which is when fence takes
// its hold off, and the node driver only waits for the vendor's plugin to remove
// its device. What is left clears up by itself, also if that takes days: nothing
// is shown for a mirror that goes, the storage stays open to the DPU until then,
// and neither a new attachment of this name nor the end of the volume overtakes
// it. All of it stays true once it is.
func over(mirror *storagev1alpha1.VolumeAttachment) bool {
	return !mirror.DeletionTimestamp.IsZero() && mirror.Spec.Epoch > 0 &&
		!mirror.Status.DPU.Attached && mirror.Status.DPU.RetiredEpoch >= mirror.Spec.Epoch &&
		controllerutil.ContainsFinalizer(mirror, storagev1alpha1.FinalizerDPUAttachment) &&
		!controllerutil.ContainsFinalizer(mirror, storagev1alpha1.FinalizerWriterClaim)
}
