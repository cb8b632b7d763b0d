package attachment

import (
	"cmp"
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
	"github.com/moor-storage/moor/pkg/writer"
)

// remove deletes the VolumeAttachment, waits until it is gone, or until nothing
// but the vendor's plugin holds it, then lets the DPUVolumeAttachment go. What most
// are through with in a moment is told only of those that are not.
func (r *Reconciler) remove(ctx context.Context, attachment *storagev1alpha1.DPUVolumeAttachment) (ctrl.Result, error) {
	outcome := kube.Settle(r.release(ctx, attachment), r.clock().Now())
	if !outcome.Waits() || outcome.StatusAfter > 0 {
		return ctrl.Result{RequeueAfter: outcome.StatusAfter}, outcome.Err
	}
	_, err := kube.PatchStatus(ctx, r.Clusters.Host.Client, attachment, func(a *storagev1alpha1.DPUVolumeAttachment) {
		detaching(a, outcome.Message)
	})
	return ctrl.Result{RequeueAfter: cmp.Or(outcome.RetryAfter, silenceAgain)}, kube.IgnoreNotFound(err)
}

// silenceAgain is when it is looked at again whether the DPU of an attachment that goes has fallen
// silent: it may be another one than its host has, of which no change of the host tells.
const silenceAgain = 30 * time.Second

// release lets the attachment go, or waits for what keeps it.
func (r *Reconciler) release(ctx context.Context, attachment *storagev1alpha1.DPUVolumeAttachment) error {
	mirror := &storagev1alpha1.VolumeAttachment{}
	found, err := r.Clusters.OwnMirror(ctx, attachment, mirror)
	if err != nil {
		return err
	}
	if !found {
		if err := r.endPredecessor(ctx, attachment, mirror); err != nil {
			return err
		}
		if err := r.waitForProof(ctx, attachment); err != nil {
			return err
		}
		return kube.RemoveFinalizers(ctx, r.Clusters.Host.Client, attachment, storagev1alpha1.FinalizerDPUVolumeAttachment)
	}
	if err := kube.Delete(ctx, r.Clusters.DPU.Client, mirror); err != nil {
		return err
	}
	if writer.Over(mirror) {
		ctrl.LoggerFrom(ctx).Info("let go while the vendor's plugin still has its device", daemon.KeyDPU, mirror.Spec.NodeName, daemon.KeyEpoch, mirror.Spec.Epoch)
		return kube.RemoveFinalizers(ctx, r.Clusters.Host.Client, attachment, storagev1alpha1.FinalizerDPUVolumeAttachment)
	}
	ended, err := r.endedWithoutDPU(ctx, attachment, mirror)
	if err != nil {
		return err
	}
	if ended {
		ctrl.LoggerFrom(ctx).Info("let go before the DPU has cleared up, as another's word has ended its epoch", daemon.KeyDPU, mirror.Spec.NodeName, daemon.KeyEpoch, mirror.Spec.Epoch)
		return kube.RemoveFinalizers(ctx, r.Clusters.Host.Client, attachment, storagev1alpha1.FinalizerDPUVolumeAttachment)
	}
	silent, err := r.bySilent(ctx, attachment, mirror)
	if err != nil {
		return err
	}
	message, err := r.unproven(ctx, attachment, mirror)
	if err != nil {
		return err
	}
	if message = cmp.Or(message, silent, saidByDPU(mirror)); message != "" {
		return kube.WaitFor("%s", message)
	}
	return kube.WaitSince(attachment.DeletionTimestamp.Time, "waiting for DPU %s to withdraw the device and for the vendor to detach it", mirror.Spec.NodeName)
}

// endedWithoutDPU reports whether the right to write for the attachment was ended by another's
// word, such as the storage's, and it is on record that the DPU has to clear up. Kubernetes
// need not wait for that: a DPU that is heard and cannot reach its storage may take long over
// it. Nothing is granted to the VolumeAttachment any more, which stays until it is done. The
// API server itself confirms it.
func (r *Reconciler) endedWithoutDPU(ctx context.Context, attachment *storagev1alpha1.DPUVolumeAttachment, mirror *storagev1alpha1.VolumeAttachment) (bool, error) {
	claim := &moorv1alpha1.WriterClaim{}
	for _, from := range []client.Reader{r.Clusters.DPU.Client, r.Clusters.DPU.Live} {
		found, err := kube.Find(ctx, from, r.Clusters.Target(attachment.Spec.DPUVolumeName), claim)
		if err != nil || !found || writer.IsLost(claim) || !writer.OverWithoutDPU(mirror, claim) {
			return false, err
		}
	}
	return true, nil
}

// bySilent says what a person can do about an attachment that goes, and whose DPU is silent; "" if it
// is not, or nothing has to be done. It holds the claim against what others know, as the pass of one
// that stays. If it is the last of its volume, nothing else does: a claim that was lost would not be
// made anew, nor a person's word about it be heard, and the attachment would wait for ever for a DPU
// that was taken out.
func (r *Reconciler) bySilent(ctx context.Context, attachment *storagev1alpha1.DPUVolumeAttachment, mirror *storagev1alpha1.VolumeAttachment) (string, error) {
	if r.Silent == nil || !r.Silent(mirror.Spec.NodeName) {
		return "", nil
	}
	if !writer.Detaching(mirror) {
		return writer.LeftBySilent(mirror, nil), nil
	}
	p := &pass{attachment: attachment, mirror: mirror, volume: &storagev1alpha1.DPUVolume{}}
	found, err := kube.Find(ctx, r.Clusters.Host.Client, client.ObjectKey{Namespace: attachment.Namespace, Name: attachment.Spec.DPUVolumeName}, p.volume)
	if err != nil || !found {
		return "", err
	}
	claim := &moorv1alpha1.WriterClaim{} // one that is not there knows nothing; one that is old is not written over
	if _, err := kube.Find(ctx, r.Clusters.DPU.Client, r.Clusters.Target(p.volume.Name), claim); err != nil {
		return "", err
	}
	if claim, err = r.remember(ctx, p, claim); err != nil {
		return "", err
	}
	return writer.LeftBySilent(mirror, claim), nil
}

// endPredecessor ends the VolumeAttachment of an earlier attachment of this name, which was
// taken away by force, and waits until it is gone: after this attachment there is none that
// would. That this one stands the API server itself has to say, or a later one has its name.
// left is what else has its name; without a UID if nothing has.
func (r *Reconciler) endPredecessor(ctx context.Context, attachment *storagev1alpha1.DPUVolumeAttachment, left *storagev1alpha1.VolumeAttachment) error {
	if _, ours := left.Labels[storagev1alpha1.LabelOwnerUID]; left.UID == "" || !ours {
		return nil
	}
	now := &storagev1alpha1.DPUVolumeAttachment{}
	found, err := kube.Find(ctx, r.Clusters.Host.Live, client.ObjectKeyFromObject(attachment), now)
	if err != nil || !found || now.UID != attachment.UID {
		return err
	}
	if err := kube.Delete(ctx, r.Clusters.DPU.Client, left); err != nil {
		return err
	}
	silent, err := r.bySilent(ctx, attachment, left)
	if err != nil {
		return err
	}
	waits := cmp.Or(silent, fmt.Sprintf("waiting for DPU %s to withdraw the device", left.Spec.NodeName))
	return kube.WaitRetry(recoverAgain, "a VolumeAttachment %s of an earlier attachment of this name is still being removed: %s", left.Name, waits)
}

// waitForProof waits while the claim is still held for the VolumeAttachment, which is gone:
// its finalizers were taken off by force. The attachment stays and says so: failover looks at
// what is attached, and ends the claim once there is a receipt.
func (r *Reconciler) waitForProof(ctx context.Context, attachment *storagev1alpha1.DPUVolumeAttachment) error {
	claim, err := r.heldFor(ctx, attachment)
	if err != nil || claim == nil {
		return err
	}
	return kube.WaitFor("%s", writer.Bereft(claim))
}

// endByVouch ends the right to write of a holder whose VolumeAttachment is gone, by an
// operator's word, if its DPUVolumeAttachment is gone too; one that is there is looked at by
// failover. Until then it waits.
func (r *Reconciler) endByVouch(ctx context.Context, claim *moorv1alpha1.WriterClaim) error {
	left := &storagev1alpha1.DPUVolumeAttachment{}
	found, err := kube.Find(ctx, r.Clusters.Host.Live, client.ObjectKey{Namespace: r.Clusters.Namespace, Name: claim.Status.Attachment}, left)
	if err != nil {
		return err
	}
	if found {
		return kube.WaitFor("%s", writer.Bereft(claim))
	}
	freed, refused, err := r.Clusters.FreeByVouch(ctx, claim, r.clock().Now())
	switch {
	case err != nil:
		return err
	case freed == nil:
		return kube.WaitRetry(recoverAgain, "%s", cmp.Or(refused, writer.Bereft(claim)))
	}
	return kube.WaitFor("%s", hostcluster.Vouched(claim))
}

// unproven says why the end of the VolumeAttachment is no receipt for the claim that it
// holds; "" if it is, or the DPU has not let go.
func (r *Reconciler) unproven(ctx context.Context, attachment *storagev1alpha1.DPUVolumeAttachment, mirror *storagev1alpha1.VolumeAttachment) (string, error) {
	if !writer.Released(mirror, nil) {
		return "", nil
	}
	claim, err := r.heldFor(ctx, attachment)
	if err != nil || claim == nil {
		return "", err
	}
	return writer.Unproven(mirror, claim), nil
}

// heldFor is the claim of the attachment's volume, if it is held for an attachment of this
// name; nil if not. The API server itself confirms it.
func (r *Reconciler) heldFor(ctx context.Context, attachment *storagev1alpha1.DPUVolumeAttachment) (*moorv1alpha1.WriterClaim, error) {
	claim := &moorv1alpha1.WriterClaim{}
	for _, from := range []client.Reader{r.Clusters.DPU.Client, r.Clusters.DPU.Live} {
		found, err := kube.Find(ctx, from, r.Clusters.Target(attachment.Spec.DPUVolumeName), claim)
		if err != nil || !found || writer.HolderFor(claim, attachment.Name).DPU == "" {
			return nil, err
		}
	}
	return claim, nil
}
