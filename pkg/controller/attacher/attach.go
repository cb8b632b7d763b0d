package attacher

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
)

// attach publishes the volume to the node. Where the finalizer was there
// before, an earlier call may have had an effect, and a refusal now does not
// undo it; a refusal of the very first call leaves nothing to undo.
func (r *Reconciler) attach(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment, pv *corev1.PersistentVolume) error {
	if !r.Features.Publish {
		return r.attached(ctx, sv, nil)
	}
	if r.holds(sv) {
		changed, err := r.reread(ctx, sv)
		if err != nil || changed {
			return err
		}
	}
	first := !r.holds(sv)
	req, err := r.request(ctx, sv, pv)
	if err != nil {
		return err
	}
	if err := r.hold(ctx, sv, req); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	metadata, err := r.Driver.Publish(bounded, req)
	if err == nil {
		return r.attached(ctx, sv, metadata)
	}
	if first && refused(err) {
		if lost := kube.RemoveFinalizers(ctx, r.DPU.Client, sv, Finalizer(r.DriverName)); lost != nil {
			return fmt.Errorf("%w; then: %w", err, lost)
		}
	}
	return err
}

// reread replaces sv by what the API server holds. changed is true if there is
// no more to attach; a watch tells of that.
func (r *Reconciler) reread(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment) (changed bool, err error) {
	uid := sv.UID
	found, err := kube.Find(ctx, r.DPU.Live, client.ObjectKeyFromObject(sv), sv)
	if err != nil {
		return false, err
	}
	return !found || sv.UID != uid || !sv.DeletionTimestamp.IsZero() || sv.Status.Attached, nil
}

func (r *Reconciler) request(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment, pv *corev1.PersistentVolume) (PublishRequest, error) {
	// A repeat must name the node as the first call did.
	nodeID := sv.Annotations[storagev1alpha1.AnnotationNodeID]
	if nodeID == "" {
		var err error
		if nodeID, err = r.nodeID(ctx, sv.Spec.NodeName); err != nil {
			return PublishRequest{}, err
		}
	}
	req, err := requestOf(pv, nodeID, r.DefaultFSType, r.Features)
	if err != nil {
		return PublishRequest{}, err
	}
	req.Secrets, err = r.secrets(ctx, pv.Spec.CSI.ControllerPublishSecretRef)
	return req, err
}

// hold writes the finalizer and what Unpublish will need, in one patch that
// fails if the object has changed since it was read.
func (r *Reconciler) hold(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment, req PublishRequest) error {
	_, err := kube.PatchExact(ctx, r.DPU.Client, sv, func(sv *storagev1alpha1.SVVolumeAttachment) {
		controllerutil.AddFinalizer(sv, Finalizer(r.DriverName))
		if sv.Annotations == nil {
			sv.Annotations = map[string]string{}
		}
		sv.Annotations[storagev1alpha1.AnnotationNodeID] = req.NodeID
		sv.Annotations[storagev1alpha1.AnnotationVolumeHandle] = req.VolumeHandle
	})
	return err
}

func (r *Reconciler) attached(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment, metadata map[string]string) error {
	wrote, err := r.writeStatus(ctx, sv, func(s *storagev1.VolumeAttachmentStatus) {
		s.Attached, s.AttachmentMetadata, s.AttachError = true, metadata, nil
	})
	if wrote && err == nil {
		ctrl.LoggerFrom(ctx).Info("attached", daemon.KeyAttachment, sv.Name, daemon.KeyVolume, volumeOf(sv), daemon.KeyNode, sv.Spec.NodeName)
	}
	return err
}

// attachError and detachError are the two places for words in the status.
func attachError(s *storagev1.VolumeAttachmentStatus) **storagev1.VolumeError { return &s.AttachError }

func detachError(s *storagev1.VolumeAttachmentStatus) **storagev1.VolumeError { return &s.DetachError }

// told writes why an attachment does not get on, if that is news, and returns
// the error, so that it is tried again after a pause; nil for a mere wait.
func (r *Reconciler) told(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment, why error,
	place func(*storagev1.VolumeAttachmentStatus) **storagev1.VolumeError,
) error {
	if why == nil || apierrors.IsConflict(why) {
		return why // a conflict says that the cache is behind, nothing else
	}
	result := why
	if w := (*kube.Waiting)(nil); errors.As(why, &w) {
		result = nil // a watch wakes us
	}
	if have := *place(&sv.Status); have != nil && have.Message == why.Error() {
		return result
	}
	_, err := r.writeStatus(ctx, sv, func(s *storagev1.VolumeAttachmentStatus) {
		*place(s) = &storagev1.VolumeError{Time: metav1.NewTime(r.Clock.Now()), Message: why.Error()}
	})
	if err != nil {
		return fmt.Errorf("%w; and it could not be told: %w", why, err)
	}
	return result
}
