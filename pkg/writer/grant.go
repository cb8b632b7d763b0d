package writer

import (
	"cmp"
	"fmt"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// Verdict is what Judge says of a claim.
type Verdict struct {
	// Grant: the claim is free; it may be granted under Epoch.
	Grant bool
	// Epoch under which the holder may write, now or after the grant.
	Epoch int64
	// Refused says who has the right to write; "" if it is granted or free.
	Refused string
}

// Judge is rule 1: it decides whether h may have the right to write. A claim
// without a status is new, and free.
func Judge(claim *moorv1alpha1.WriterClaim, h Holder) Verdict {
	status := claim.Status
	switch {
	case status == nil:
		return Verdict{Grant: true, Epoch: 1}
	case status.Phase == moorv1alpha1.ClaimFree:
		return Verdict{Grant: true, Epoch: status.Epoch + 1}
	case status.Phase == moorv1alpha1.ClaimGranted && Holds(claim, h):
		return Verdict{Epoch: status.Epoch}
	case status.Phase == moorv1alpha1.ClaimFencing:
		return Verdict{Refused: fmt.Sprintf("volume %s is being fenced from DPU %s (epoch %d); it waits for proof that the old host can no longer write",
			claim.Spec.VolumeName, status.Holder, status.Epoch)}
	case IsLost(claim):
		return Verdict{Refused: LostMessage(claim)}
	case named(claim, h):
		return Verdict{Refused: Bereft(claim)}
	}
	return Verdict{Refused: fmt.Sprintf("volume %s has a single writer, and DPU %s holds it (attachment %s, epoch %d): this attachment waits until that one is deleted",
		claim.Spec.VolumeName, status.Holder, status.Attachment, status.Epoch)}
}

// Bereft says what is waited for while a claim is held for a VolumeAttachment that is gone,
// or in whose place there is another: it can give no receipt any more.
func Bereft(claim *moorv1alpha1.WriterClaim) string {
	s := claim.Status
	return fmt.Sprintf("DPU %s holds the right to write volume %s (epoch %d) for VolumeAttachment %s (UID %s), which is gone without a receipt: "+
		"nothing is granted before it is proven that this DPU cannot write any more; %s",
		s.Holder, claim.Spec.VolumeName, s.Epoch, s.Attachment, s.AttachmentUID, remedy(claim))
}

// Abandoned says what is waited for while the VolumeAttachment of a DPUVolumeAttachment that
// was taken away by force goes.
func Abandoned(a *storagev1alpha1.VolumeAttachment) string {
	return fmt.Sprintf("DPUVolumeAttachment %s was taken away by force, and its VolumeAttachment in the DPU cluster is deleted: waiting for DPU %s to withdraw the volume", a.Name, a.Spec.NodeName)
}

// AbandonedBySilent is Abandoned of a holder whose DPU is silent; refused is why an operator's
// word does not count, "" if there is none.
func AbandonedBySilent(a *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim, refused string) string {
	return fmt.Sprintf("%s, which is silent; %s", Abandoned(a), cmp.Or(refused, remedy(claim)))
}

// Orphaned says what is waited for while a claim is held though its volume is gone.
func Orphaned(claim *moorv1alpha1.WriterClaim) string {
	if IsLost(claim) {
		return "the Volume is gone; " + LostMessage(claim)
	}
	return fmt.Sprintf("the Volume is gone, and DPU %s holds the right to write it (epoch %d) without a receipt: %s", claim.Status.Holder, claim.Status.Epoch, remedy(claim))
}

// Settled reports whether h has the right to write under this epoch, so that there is
// nothing to grant. It may be asked of a claim that a cache has: an old one only
// delays what follows.
func Settled(claim *moorv1alpha1.WriterClaim, h Holder, epoch int64) bool {
	return Holds(claim, h) && claim.Status.Phase == moorv1alpha1.ClaimGranted && claim.Status.Epoch == epoch
}

// LastReceipt is that of the epoch that ended last; nil if none did.
func LastReceipt(claim *moorv1alpha1.WriterClaim) *moorv1alpha1.Receipt {
	if claim.Status == nil || len(claim.Status.Receipts) == 0 {
		return nil
	}
	return &claim.Status.Receipts[len(claim.Status.Receipts)-1]
}
