package attacher

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/writer"
)

// detach has the driver take the volume back, and only then lets the object go:
// other controllers take its disappearance for the vendor's confirmation that the
// node can no longer write.
//
// Where a failover may wait for the vendor's word, the word is written before.
func (r *Reconciler) detach(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment) error {
	if r.Features.Publish {
		nodeID, err := r.unpublish(ctx, sv)
		if err != nil {
			return err
		}
		if err := r.confirm(ctx, sv, nodeID); err != nil {
			return err
		}
	}
	if len(sv.Finalizers) > 1 { // the object stays: it must not say "attached"
		_, err := r.writeStatus(ctx, sv, func(s *storagev1.VolumeAttachmentStatus) {
			*s = storagev1.VolumeAttachmentStatus{}
		})
		if err != nil {
			return err
		}
	}
	if err := kube.RemoveFinalizers(ctx, r.DPU.Client, sv, Finalizer(r.DriverName)); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("detached", daemon.KeyAttachment, sv.Name, daemon.KeyVolume, volumeOf(sv), daemon.KeyNode, sv.Spec.NodeName)
	return nil
}

// confirm writes into the VolumeAttachment, which has the same name, that the volume was
// taken back, if it takes that. This object is still there, so no other can have been asked
// for since.
func (r *Reconciler) confirm(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment, nodeID string) error {
	a := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, r.DPU.Live, types.NamespacedName{Namespace: sv.Namespace, Name: sv.Name}, a)
	if err != nil {
		return fmt.Errorf("find out for which attachment volume %s was taken back from node %s: %w", volumeOf(sv), sv.Spec.NodeName, err)
	}
	if !found || !writer.TakesRevocation(a, sv.Spec.NodeName) {
		return nil
	}
	_, err = kube.PatchStatus(ctx, r.DPU.Client, a, func(a *storagev1alpha1.VolumeAttachment) { writer.Revoked(a, nodeID, r.Clock.Now()) })
	return kube.IgnoreNotFound(err)
}

// unpublish has the driver take the volume back, and returns the driver's name for the
// node.
func (r *Reconciler) unpublish(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment) (string, error) {
	pv := &corev1.PersistentVolume{}
	found, err := kube.Find(ctx, r.DPU.Client, types.NamespacedName{Name: volumeOf(sv)}, pv)
	if err != nil {
		return "", err
	}
	handle, nodeID := sv.Annotations[storagev1alpha1.AnnotationVolumeHandle], sv.Annotations[storagev1alpha1.AnnotationNodeID]
	var ref *corev1.SecretReference
	if found && pv.Spec.CSI != nil && pv.Spec.CSI.Driver == r.DriverName {
		ref = pv.Spec.CSI.ControllerPublishSecretRef
		if handle == "" {
			handle = pv.Spec.CSI.VolumeHandle
		}
	}
	if handle == "" {
		return "", fmt.Errorf("PersistentVolume %s is gone, so the vendor's name of the volume is unknown: see to it by hand that "+
			"node %s can no longer reach the volume, then remove finalizer %s. Without the word of this attacher the storage "+
			"gives no receipt: a failover from %s then waits for that DPU, its lease or an operator: %w",
			volumeOf(sv), sv.Spec.NodeName, Finalizer(r.DriverName), sv.Spec.NodeName, provisioner.ErrPrecondition)
	}
	if nodeID == "" {
		if nodeID, err = r.nodeID(ctx, sv.Spec.NodeName); err != nil {
			return "", err
		}
	}
	secrets, err := r.secrets(ctx, ref)
	if err != nil {
		return "", err
	}
	bounded, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	return nodeID, r.Driver.Unpublish(bounded, handle, nodeID, secrets)
}
