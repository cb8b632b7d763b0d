package volume

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// changes are what was asked of a volume after it was made and is not in effect
// yet; nil is nothing.
type changes struct {
	expansion, modification *storagev1alpha1.VolumeChange
}

// change has the vendor's claim ask for what is asked of the volume now. The
// volume stays Available meanwhile: what it has can be used.
func (r *Reconciler) change(ctx context.Context, v *storagev1alpha1.Volume, claim *corev1.PersistentVolumeClaim) (changes, error) {
	expansion, failedExpand := r.expand(ctx, v, claim)
	modification, failedModify := r.modify(ctx, v, claim)
	return changes{expansion, modification}, errors.Join(failedExpand, failedModify)
}

// ofClass finds the volumes that wait for their StorageClass to allow them to
// grow. It goes over all volumes: a class changes about never.
func (r *Reconciler) ofClass(ctx context.Context, class client.Object) []reconcile.Request {
	list := &storagev1alpha1.VolumeList{}
	if err := r.DPU.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "find the volumes of a StorageClass", "class", class.GetName())
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		v := &list.Items[i]
		if v.Status.Expansion != nil && v.Spec.Volume.CSIReference.StorageClassName == class.GetName() {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(v)})
		}
	}
	return out
}
