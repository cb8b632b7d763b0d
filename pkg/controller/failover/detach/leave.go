package detach

import (
	"context"
	"fmt"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/writer"
)

// silenceAgain is when it is looked at again whether a DPU has fallen silent that has not
// let go.
const silenceAgain = 10 * time.Second

// concerns reports whether there is something to do for an attachment: it goes, and is
// tied to a claim, or its DPU has retired its epoch and did not let go.
func concerns(a *storagev1alpha1.VolumeAttachment) bool { return writer.Detaching(a) || writer.Over(a) }

// leave lets an attachment go without its DPU, whose epoch is over, or which never had one: the
// DPU is silent, so that its vendor's plugin removes no device; and until the holds are taken off
// the vendor is not asked to detach, and neither may let another DPU in nor delete the volume. First
// it is on record that this DPU has to clear up before the storage is opened to it again.
// What others still want stays: it would be made anew.
func (r *Reconciler) leave(ctx context.Context, a *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) (ctrl.Result, error) {
	recorded := writer.OverWithoutDPU(a, claim)
	if !recorded && !writer.NeverGranted(a, claim) && (!writer.Over(a) || claim == nil) {
		return ctrl.Result{}, nil // what the DPU says starts a pass, and what becomes of the claim
	}
	if !r.silent(a) {
		return r.lookAtSilence()
	}
	if wanted, err := r.wanted(ctx, a); err != nil || wanted {
		return ctrl.Result{RequeueAfter: silenceAgain}, err
	}
	if !recorded {
		after, err := writer.Disown(claim, a)
		if err != nil {
			return ctrl.Result{RequeueAfter: silenceAgain}, nil // the DPU holds the volume again
		}
		// With the resourceVersion that was read, as everything that changes a claim.
		if err := r.DPU.Client.Status().Update(ctx, after); err != nil {
			return ctrl.Result{}, fmt.Errorf("let VolumeAttachment %s go without DPU %s: %w", a.Name, a.Spec.NodeName, err)
		}
	}
	ctrl.LoggerFrom(ctx).Info("let go without the DPU, which is silent", daemon.KeyDPU, a.Spec.NodeName, daemon.KeyEpoch, a.Spec.Epoch)
	return ctrl.Result{}, kube.RemoveFinalizers(ctx, r.DPU.Client, a, storagev1alpha1.FinalizerDPUAttachment, storagev1alpha1.FinalizerWriterClaim)
}

// silent reports whether the DPU of an attachment has not been heard for the whole
// timeout: one that is merely late may be about to let go.
func (r *Reconciler) silent(a *storagev1alpha1.VolumeAttachment) bool {
	return r.Heartbeats != nil && r.Heartbeats.DPU(a.Spec.NodeName) == nodehealth.Stale
}

func (r *Reconciler) lookAtSilence() (ctrl.Result, error) {
	if r.Heartbeats == nil {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: silenceAgain}, nil
}

// wanted reports whether the owner of the attachment in the host cluster stays. One that
// has come in its place waits for this one to go.
func (r *Reconciler) wanted(ctx context.Context, a *storagev1alpha1.VolumeAttachment) (bool, error) {
	namespace, name, ok := strings.Cut(a.Annotations[storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment], "/")
	if r.Host.Live == nil || !ok {
		return false, nil
	}
	owner := &storagev1alpha1.DPUVolumeAttachment{}
	found, err := kube.Find(ctx, r.Host.Live, client.ObjectKey{Namespace: namespace, Name: name}, owner)
	uid, ours := a.Labels[storagev1alpha1.LabelOwnerUID]
	return found && owner.DeletionTimestamp.IsZero() && (!ours || uid == string(owner.UID)), err
}
