package volume

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// changes are what was asked of a volume after it was made and is not in effect
// yet; nil is nothing.
type changes struct {
	expansion, modification *storagev1alpha1.VolumeChange
}

// change has the vendor's claim ask for what is asked of the volume now. The
// volume stays Available meanwhile: what it has can be used.
func (r *Reconciler) change(ctx context.Context, v *storagev1alpha1.Volume, pvc *corev1.PersistentVolumeClaim) (changes, error) {
	expansion, failedExpand := r.expand(ctx, v, pvc)
	modification, failedModify := r.modify(ctx, v, pvc)
	return changes{expansion, modification}, errors.Join(failedExpand, failedModify)
}
