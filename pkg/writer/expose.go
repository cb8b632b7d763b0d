package writer

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// SingleWriter reports whether the volume may be written from one host at a time,
// so that a claim is needed. The marks of a claim on the attachment are enough; a
// volume that is gone (nil) is judged by them alone, and is not exposed anew in
// any case.
func SingleWriter(attachment *storagev1alpha1.VolumeAttachment, volume *storagev1alpha1.Volume) bool {
	if attachment.Spec.Epoch != 0 || controllerutil.ContainsFinalizer(attachment, storagev1alpha1.FinalizerWriterClaim) {
		return true
	}
	return volume != nil && provisioner.SingleNode(volume.Spec.Request.AccessModes)
}

// Refusal is rule 2: it decides whether the DPU may expose a single-writer volume
// for the attachment, and says why not; "" if it may. Only a claim that is granted
// to this DPU, for this attachment, under its epoch, allows it; never an epoch that
// was retired here, and never a replica. claim is nil if there is none; it has to
// be read from the API server itself.
func Refusal(dpu string, attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) string {
	volume := attachment.VolumeName()
	switch {
	case attachment.IsReplica():
		return fmt.Sprintf("a replica of volume %s: kept ready, not shown", volume)
	case !Held(claim) || claim.Status.Phase == "":
		return fmt.Sprintf("waits for snap-host-controller to grant the right to write volume %s: no DPU holds it", volume)
	case IsLost(claim):
		return fmt.Sprintf("WriterClaim %s was deleted or restored and has lost its record of who may write: not shown before a new grant", volume)
	case claim.Status.Phase == moorv1alpha1.ClaimFencing:
		return fmt.Sprintf("volume %s is being fenced from DPU %s (epoch %d): not shown until that ends", volume, claim.Status.Holder, claim.Status.Epoch)
	case claim.Status.Phase != moorv1alpha1.ClaimGranted:
		return fmt.Sprintf("WriterClaim %s is in phase %q, which this version does not know: not shown", volume, claim.Status.Phase)
	}
	return refusalOfGrant(dpu, attachment, claim.Status)
}

// refusalOfGrant is Refusal for a claim that is granted.
func refusalOfGrant(dpu string, attachment *storagev1alpha1.VolumeAttachment, s *moorv1alpha1.WriterClaimStatus) string {
	volume, retired := attachment.VolumeName(), attachment.Status.DPU.RetiredEpoch
	switch {
	case s.Holder == dpu && s.Attachment == attachment.Name && s.AttachmentUID != "" && s.AttachmentUID != attachment.UID:
		return fmt.Sprintf("the right to write volume %s is granted for an earlier VolumeAttachment %s (UID %s, epoch %d), and not for this one: not shown", volume, s.Attachment, s.AttachmentUID, s.Epoch)
	case s.Holder != dpu || s.Attachment != attachment.Name:
		return fmt.Sprintf("volume %s has a single writer, and DPU %s holds it (attachment %s, epoch %d): not shown here", volume, s.Holder, s.Attachment, s.Epoch)
	case attachment.Spec.Epoch == 0 || s.Epoch == 0:
		return fmt.Sprintf("the right to write volume %s is granted to this DPU: waits for snap-host-controller to write the epoch", volume)
	case s.Epoch != attachment.Spec.Epoch:
		return fmt.Sprintf("the right to write volume %s is granted under epoch %d, this attachment is of epoch %d: not shown", volume, s.Epoch, attachment.Spec.Epoch)
	case s.Epoch <= retired:
		return fmt.Sprintf("epoch %d of volume %s is over on DPU %s, which has retired epoch %d: not shown before a new grant", s.Epoch, volume, dpu, retired)
	}
	return ""
}

// Stands reports whether what a pass knows of an attachment is what the API server
// says now, as far as an exposure rests on it: it is the same object, there to
// stay, protected by the node driver's finalizer, with the same right, readiness
// and device. device is the one that the pass is about to show.
func Stands(known, now *storagev1alpha1.VolumeAttachment, device string) bool {
	return now.UID == known.UID && now.DeletionTimestamp.IsZero() &&
		controllerutil.ContainsFinalizer(now, storagev1alpha1.FinalizerDPUAttachment) &&
		sameRight(known, now) &&
		now.Status.DPU.DeviceName == device
}

// sameRight reports whether both say the same of what the DPU may show.
func sameRight(a, b *storagev1alpha1.VolumeAttachment) bool {
	return a.Spec.Epoch == b.Spec.Epoch && a.Status.DPU.RetiredEpoch == b.Status.DPU.RetiredEpoch &&
		a.IsReplica() == b.IsReplica() && a.ShownAsReplica() == b.ShownAsReplica()
}

// FencedEpoch is the epoch that is being taken from the DPU for this attachment; 0
// if none is.
func FencedEpoch(dpu string, attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) int64 {
	if !InFencing(claim, Holder{DPU: dpu, Attachment: attachment.Name, UID: attachment.UID}) {
		return 0
	}
	return claim.Status.Epoch
}

// HeldForAnother reports whether the DPU of the attachment holds the claim for another
// VolumeAttachment, which it may show: the one before of its name, which is gone. A fence may
// have seen the storage close for that one, and free the claim next. So the storage is not
// opened to the DPU for this one before.
func HeldForAnother(claim *moorv1alpha1.WriterClaim, a *storagev1alpha1.VolumeAttachment) bool {
	return Held(claim) && !IsLost(claim) && claim.Status.Holder == a.Spec.NodeName && !Holds(claim, HolderOf(a))
}

// Uncleared is the last epoch that was taken from the DPU by the word of another, or
// that may have been, since the claim lost its record of that; 0 if there is none, or if
// the DPU has retired it itself. It may still show the volume: the storage is not
// opened to it before, and it withdraws what is left.
func Uncleared(claim *moorv1alpha1.WriterClaim, dpu string, retired int64) int64 {
	if claim == nil || claim.Status == nil {
		return 0
	}
	if epoch := max(claim.Status.RevokedEpoch(dpu), claim.Status.LostEpoch); epoch > retired {
		return epoch
	}
	return 0
}
