package attachment

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// detach waits until the DPU has let go of the volume, has the vendor detach
// it, waits until the vendor has, and takes the finalizer off.
func (r *Reconciler) detach(ctx context.Context, a *storagev1alpha1.VolumeAttachment, attached *bool) error {
	if !controllerutil.ContainsFinalizer(a, storagev1alpha1.FinalizerVolumeAttachment) {
		return nil
	}
	if controllerutil.ContainsFinalizer(a, storagev1alpha1.FinalizerDPUAttachment) {
		return kube.WaitFor("waiting for DPU %s to withdraw the volume", a.Spec.NodeName)
	}
	sv, found, err := r.asked(ctx, a)
	if err != nil {
		return err
	}
	if found {
		*attached = sv.Status.Attached
		if err := kube.Delete(ctx, r.DPU.Client, sv); err != nil {
			return err
		}
		if words := detachWords(sv); words != "" {
			return kube.WaitFor("waiting for the vendor to detach the volume from DPU %s%s", a.Spec.NodeName, words)
		}
		return kube.WaitSince(r.askedSince(sv), "waiting for the vendor to detach the volume from DPU %s", a.Spec.NodeName)
	}
	return kube.RemoveFinalizers(ctx, r.DPU.Client, a, storagev1alpha1.FinalizerVolumeAttachment)
}

// askedSince is when the vendor was asked to detach: it was not before the DPU let go, which
// may have taken long.
func (r *Reconciler) askedSince(sv *storagev1alpha1.SVVolumeAttachment) time.Time {
	if sv.DeletionTimestamp.IsZero() { // by this pass
		return r.Clock.Now()
	}
	return sv.DeletionTimestamp.Time
}

// asked finds the SVVolumeAttachment. That it is gone is asked of the API
// server: the cache may not yet show one made a moment ago.
func (r *Reconciler) asked(ctx context.Context, a *storagev1alpha1.VolumeAttachment) (*storagev1alpha1.SVVolumeAttachment, bool, error) {
	key := types.NamespacedName{Namespace: a.Namespace, Name: a.Name}
	sv := &storagev1alpha1.SVVolumeAttachment{}
	found, err := kube.Find(ctx, r.DPU.Client, key, sv)
	if err == nil && !found {
		found, err = kube.Find(ctx, r.DPU.Live, key, sv)
	}
	return sv, found, err
}

func detachWords(sv *storagev1alpha1.SVVolumeAttachment) string {
	if sv.Status.DetachError == nil {
		return ""
	}
	return ": the last attempt failed: " + sv.Status.DetachError.Message
}
