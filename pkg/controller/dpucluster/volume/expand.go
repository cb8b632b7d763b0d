package volume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// expand has the vendor's claim ask for the size that the volume is asked for,
// if the volume is smaller. csi-resizer beside the vendor's controller does the
// rest; the PersistentVolume tells when it is done.
func (r *Reconciler) expand(ctx context.Context, v *storagev1alpha1.Volume, pvc *corev1.PersistentVolumeClaim) (*storagev1alpha1.VolumeChange, error) {
	want, have := v.Spec.Request.CapacityRange.Request, v.Spec.Volume.Capacity
	if want == nil || have == nil || have.Cmp(*want) >= 0 {
		return nil, nil
	}
	asked := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	if asked.Cmp(*want) < 0 {
		message, err := r.cannotGrow(ctx, v, pvc)
		if err != nil || message != "" {
			return &storagev1alpha1.VolumeChange{Size: want, Message: message, Refused: message != ""}, err
		}
	}
	_, err := kube.Patch(ctx, r.DPU.Client, pvc, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = *want
	})
	if err != nil {
		return &storagev1alpha1.VolumeChange{Size: want, Message: err.Error()}, err
	}
	return expansionOf(pvc, *have, *want), nil
}

// cannotGrow says why the vendor's claim may not be asked to grow; ""
// if it may. The API server refuses it too, with a message that names no remedy.
func (r *Reconciler) cannotGrow(ctx context.Context, v *storagev1alpha1.Volume, pvc *corev1.PersistentVolumeClaim) (string, error) {
	name := v.Spec.Volume.CSIReference.StorageClassName
	class := &storagev1.StorageClass{}
	found, err := kube.Find(ctx, r.DPU.Client, types.NamespacedName{Name: name}, class)
	switch {
	case err != nil:
		return "", err
	case !found:
		return fmt.Sprintf("the vendor's PersistentVolumeClaim %s cannot grow: StorageClass %s does not exist any more", pvc.Name, name), nil
	case class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion:
		return fmt.Sprintf("the vendor's PersistentVolumeClaim %s cannot grow: StorageClass %s in the DPU cluster has no allowVolumeExpansion: true", pvc.Name, name), nil
	}
	return "", nil
}

// expansionOf says how far the vendor is with a claim that asks for more.
func expansionOf(pvc *corev1.PersistentVolumeClaim, have, want resource.Quantity) *storagev1alpha1.VolumeChange {
	change := &storagev1alpha1.VolumeChange{Size: &want}
	tried, status := pvc.Status.AllocatedResources[corev1.ResourceStorage], pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	for _, c := range pvc.Status.Conditions {
		if c.Type == corev1.PersistentVolumeClaimControllerResizeError && c.Status == corev1.ConditionTrue && tried.Cmp(want) == 0 {
			change.Message = fmt.Sprintf("the vendor could not expand PersistentVolumeClaim %s: %s", pvc.Name, c.Message)
			change.Refused = status == corev1.PersistentVolumeClaimControllerResizeInfeasible
		}
	}
	if change.Message == "" {
		change.Message = fmt.Sprintf("waiting for the vendor to expand PersistentVolumeClaim %s from %s to %s: is csi-resizer running beside its CSI controller?",
			pvc.Name, have.String(), want.String())
	}
	return change
}
