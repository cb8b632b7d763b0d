package writer

import (
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// Step is what to do about an attachment and the claim of its volume.
type Step int

const (
	// Wait leaves all as it is: the DPU may still be able to write; or the attachment is in use.
	Wait Step = iota
	// FreeClaim means that there is a receipt: the claim becomes Free, then the
	// attachment is let go.
	FreeClaim
	// LetGo lets the attachment go: the claim is not its own.
	LetGo
)

// Detach is rule 3, receipt A, for an orderly detach: the next step, and the
// receipt if that is FreeClaim. claim is nil if there is none. Both were read from
// the API server itself.
func Detach(attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) (Step, moorv1alpha1.Receipt) {
	switch {
	case !Released(attachment, claim), lostHolder(claim, attachment.Name, attachment.UID) >= 0: // Recover comes first
		return Wait, moorv1alpha1.Receipt{}
	case !Holds(claim, HolderOf(attachment)):
		return LetGo, moorv1alpha1.Receipt{}
	case !releases(attachment, claim):
		return Wait, moorv1alpha1.Receipt{}
	}
	return FreeClaim, *receiptOf(claim, moorv1alpha1.ReceiptDPU, releasedMessage(claim, attachment))
}

func releasedMessage(claim *moorv1alpha1.WriterClaim, attachment *storagev1alpha1.VolumeAttachment) string {
	return fmt.Sprintf("DPU %s withdrew the device and released attachment %s", claim.Status.Holder, attachment.Name)
}

// Released reports whether the DPU has let the attachment go. The only proof that
// counts is the DPU's own: the node driver removes its finalizer after the
// namespace is detached and in-flight I/O has ended, and it puts it there before
// it shows anything, which the API server forbids once the attachment is being
// deleted. So: being deleted, without that finalizer, and not shown, means that
// this DPU cannot write for this attachment now or later.
//
// The finalizer also waits for the vendor's plugin to remove its device. Where
// that does not answer, the DPU's word that it has retired the epoch is the same
// proof: it is written after the namespace is detached, the DPU never shows the
// volume under that epoch again, and no other epoch is granted to an attachment
// that is being deleted.
func Released(attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) bool {
	switch {
	case attachment.DeletionTimestamp.IsZero():
		return false
	case attachment.Status.DPU.Attached:
		// Shown still; or the finalizer was taken away by force: no receipt.
		return false
	case controllerutil.ContainsFinalizer(attachment, storagev1alpha1.FinalizerDPUAttachment):
		return retired(attachment, claim)
	}
	return true
}

// releases reports whether it is proof for the claim, which the attachment holds, that
// it was let go of. Of a claim that is bound to no object, what is missing on the
// attachment may never have been there: it may have been made in the place of the one
// that the DPU showed. The epoch that its DPU has retired is the proof then.
func releases(attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) bool {
	return Released(attachment, claim) && (bound(claim) || retired(attachment, claim))
}

// Unproven says why the end of an attachment that was let go of is no receipt for the claim
// that is held for its name; "" if it is one.
func Unproven(attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) string {
	switch h := HolderOf(attachment); {
	case !named(claim, h) || releases(attachment, claim) && Holds(claim, h):
		return ""
	case !Holds(claim, h):
		return Bereft(claim)
	}
	return fmt.Sprintf("the right to write volume %s was granted (epoch %d) before claims said for which VolumeAttachment, and DPU %s has not retired that epoch on this one: "+
		"it may have been made anew, and proves nothing; %s", claim.Spec.VolumeName, claim.Status.Epoch, claim.Status.Holder, remedy(claim))
}

// retired reports whether the DPU has said that every epoch is over under which
// the attachment ever had the right to write, and that there was one.
func retired(attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) bool {
	epoch := attachment.Spec.Epoch
	if Holds(claim, HolderOf(attachment)) {
		epoch = max(epoch, claim.Status.Epoch)
	}
	return epoch > 0 && attachment.Status.DPU.RetiredEpoch >= epoch
}

// VendorGrace is how long the vendor's plugin may take to remove its device
// before the attachment is looked at without it: mostly the node driver lets go
// at once, and two who write at the same time get into each other's way.
const VendorGrace = 2 * time.Second

// Early is how long to wait before a detach that rests on the retired epoch alone
// is carried out; 0 if it does not, or has waited.
func Early(attachment *storagev1alpha1.VolumeAttachment, now time.Time) time.Duration {
	if attachment.DeletionTimestamp.IsZero() || !controllerutil.ContainsFinalizer(attachment, storagev1alpha1.FinalizerDPUAttachment) {
		return 0
	}
	// A server whose clock is ahead does not make it longer.
	return min(VendorGrace, max(0, VendorGrace-now.Sub(attachment.DeletionTimestamp.Time)))
}

// Over reports whether nothing of the attachment concerns the host cluster any
// more: its DPU has retired its epoch, the claim was freed, after which the hold
// of the claim is taken off, and the node driver only waits for the vendor's plugin
// to remove its device. What is left clears up by itself, also if that takes days:
// nothing is shown for an attachment that goes, the storage stays open to the DPU
// until then, and neither a new attachment of this name nor the end of the volume
// overtakes it. All of it stays true once it is.
func Over(attachment *storagev1alpha1.VolumeAttachment) bool {
	return !attachment.DeletionTimestamp.IsZero() && attachment.Spec.Epoch > 0 &&
		!attachment.Status.DPU.Attached && attachment.Status.DPU.RetiredEpoch >= attachment.Spec.Epoch &&
		controllerutil.ContainsFinalizer(attachment, storagev1alpha1.FinalizerDPUAttachment) &&
		!controllerutil.ContainsFinalizer(attachment, storagev1alpha1.FinalizerWriterClaim)
}

// Surrendered is the receipt of a DPU that has retired the epoch under which the claim is
// granted to it, though it is neither fenced nor deleted: its journal tells of that epoch as
// over, so the cluster of the DPUs was restored from a backup. nil if it has not. Both were
// read from the API server itself, the claim first.
func Surrendered(attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) *moorv1alpha1.Receipt {
	if !Surrenders(attachment) || !Holds(claim, HolderOf(attachment)) || claim.Status.Phase != moorv1alpha1.ClaimGranted || !bound(claim) ||
		claim.Status.Epoch <= 0 || attachment.Status.DPU.RetiredEpoch < claim.Status.Epoch {
		return nil
	}
	return receiptOf(claim, moorv1alpha1.ReceiptDPU,
		fmt.Sprintf("DPU %s does not show the volume under epoch %d, since it has retired epoch %d before", claim.Status.Holder, claim.Status.Epoch, attachment.Status.DPU.RetiredEpoch))
}

// Surrenders reports whether the attachment may have such a receipt, for all that it says
// itself: it stands, and its DPU has retired its epoch.
func Surrenders(attachment *storagev1alpha1.VolumeAttachment) bool {
	return attachment.DeletionTimestamp.IsZero() && attachment.Spec.Epoch > 0 && !attachment.Status.DPU.Attached &&
		attachment.Status.DPU.RetiredEpoch >= attachment.Spec.Epoch
}
