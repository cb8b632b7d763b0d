package writer

import (
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// ErrTransition means that the claim is not in a phase from which it can go there.
var ErrTransition = errors.New("the writer claim does not allow this transition")

// keepReceipts is how many receipts a claim keeps, the limit of its schema.
const keepReceipts = 8

// Holder is what the right to write is granted to: a DPU, for one
// VolumeAttachment.
type Holder struct {
	DPU, Attachment string
	// UID of the VolumeAttachment; "" if there is none.
	UID types.UID
}

// HolderOf is the holder that an attachment can be.
func HolderOf(a *storagev1alpha1.VolumeAttachment) Holder {
	return Holder{DPU: a.Spec.NodeName, Attachment: a.Name, UID: a.UID}
}

// Held reports whether a DPU has the right to write, or had it and there is no
// receipt yet. No claim, and one without a status, is held by none.
func Held(claim *moorv1alpha1.WriterClaim) bool {
	return claim != nil && claim.Status != nil && claim.Status.Phase != moorv1alpha1.ClaimFree
}

// Holds reports whether the claim is held by h. An attachment that was made in the
// place of the one that holds it has its name, and not its UID.
func Holds(claim *moorv1alpha1.WriterClaim, h Holder) bool {
	return named(claim, h) && (!bound(claim) || claim.Status.AttachmentUID == h.UID)
}

// named reports whether the claim is held by the DPU, for an attachment of the name.
func named(claim *moorv1alpha1.WriterClaim, h Holder) bool {
	return Held(claim) && claim.Status.Holder == h.DPU && claim.Status.Attachment == h.Attachment
}

// bound reports whether the claim says to which object it was granted. One that was
// granted before claims said that does not.
func bound(claim *moorv1alpha1.WriterClaim) bool { return claim.Status.AttachmentUID != "" }

// Nameless reports whether the claim was granted before claims said to which object, and
// has not been bound to one since.
func Nameless(claim *moorv1alpha1.WriterClaim) bool {
	return Held(claim) && !IsLost(claim) && !bound(claim)
}

// HolderFor is the holder whose right to write is, or was, for the attachment of this
// name, and of which there is no receipt yet; none if the claim is not held for it.
func HolderFor(claim *moorv1alpha1.WriterClaim, attachment string) Holder {
	if !Held(claim) || claim.Status.Attachment != attachment {
		return Holder{}
	}
	return Holder{DPU: claim.Status.Holder, Attachment: attachment, UID: claim.Status.AttachmentUID}
}

// GrantedFor reports whether the right to write is granted for the attachment of
// this name, to whatever DPU.
func GrantedFor(claim *moorv1alpha1.WriterClaim, attachment string) bool {
	return Held(claim) && claim.Status.Phase == moorv1alpha1.ClaimGranted && claim.Status.Attachment == attachment
}

// InFencing reports whether the right to write is being taken from h.
func InFencing(claim *moorv1alpha1.WriterClaim, h Holder) bool {
	return Holds(claim, h) && claim.Status.Phase == moorv1alpha1.ClaimFencing
}

// FencedFrom reports whether the right to write is being taken from the DPU, also by a
// claim that was lost.
func FencedFrom(claim *moorv1alpha1.WriterClaim, dpu string) bool {
	if IsLost(claim) {
		return slices.ContainsFunc(claim.Status.Lost, func(h moorv1alpha1.LostHolder) bool { return h.DPU == dpu })
	}
	return Held(claim) && claim.Status.Phase == moorv1alpha1.ClaimFencing && claim.Status.Holder == dpu
}

// HeldBy reports whether a DPU can have the right to write by the claim: it has it, there
// is no receipt yet, or it is one of those who may still write by a claim that was lost. If
// that claim does not know of whom epochs were, any DPU may.
func HeldBy(claim *moorv1alpha1.WriterClaim, dpu string) bool {
	switch {
	case IsLost(claim):
		return claim.Status.Holder == dpu || FencedFrom(claim, dpu)
	case Held(claim):
		return claim.Status.Holder == dpu
	}
	return Behind(claim, 0)
}

// Vouched reports whether there is an operator's word about the epoch of h. Whether it
// counts says RefuseVouch.
func Vouched(claim *moorv1alpha1.WriterClaim, h Holder) bool {
	return Holds(claim, h) && claim.Spec.OperatorReceipt != nil && claim.Spec.OperatorReceipt.Epoch == claim.Status.Epoch
}

// Grant is the claim after Free -> Granted, under the next epoch. The attachment has to
// be there already: what is granted to is one object.
func Grant(claim *moorv1alpha1.WriterClaim, to Holder) (*moorv1alpha1.WriterClaim, error) {
	if to.UID == "" {
		return nil, fmt.Errorf("grant volume %s to DPU %s: VolumeAttachment %s is not there: %w", claim.Spec.VolumeName, to.DPU, to.Attachment, ErrTransition)
	}
	if Held(claim) {
		return nil, fmt.Errorf("grant volume %s to DPU %s in phase %q: %w", claim.Spec.VolumeName, to.DPU, claim.Status.Phase, ErrTransition)
	}
	if Behind(claim, 0) {
		return nil, fmt.Errorf("grant volume %s to DPU %s: epochs up to %d were granted before the claim was made, and it has not been noted of whom: %w",
			claim.Spec.VolumeName, to.DPU, claim.Spec.AfterEpoch, ErrTransition)
	}
	out := claim.DeepCopy()
	if out.Status == nil {
		out.Status = &moorv1alpha1.WriterClaimStatus{}
	}
	s := out.Status
	s.Phase, s.Holder, s.Attachment, s.AttachmentUID = moorv1alpha1.ClaimGranted, to.DPU, to.Attachment, to.UID
	s.Epoch++
	return out, nil
}

// Unbound reports whether the claim is granted to the attachment by its name alone, and
// may be bound to it: its DPU has put its finalizer on it, so what is missing on it from
// now on is the DPU's doing.
func Unbound(claim *moorv1alpha1.WriterClaim, attachment *storagev1alpha1.VolumeAttachment) bool {
	return named(claim, HolderOf(attachment)) && !bound(claim) && claim.Status.Phase == moorv1alpha1.ClaimGranted && attachment.UID != "" &&
		attachment.DeletionTimestamp.IsZero() && controllerutil.ContainsFinalizer(attachment, storagev1alpha1.FinalizerDPUAttachment)
}

// Bind is the claim after it says which object it was granted to.
func Bind(claim *moorv1alpha1.WriterClaim, attachment *storagev1alpha1.VolumeAttachment) (*moorv1alpha1.WriterClaim, error) {
	if !Unbound(claim, attachment) {
		return nil, fmt.Errorf("bind the right to write volume %s to VolumeAttachment %s: %w", claim.Spec.VolumeName, attachment.Name, ErrTransition)
	}
	out := claim.DeepCopy()
	out.Status.AttachmentUID = attachment.UID
	return out, nil
}

// BeginFencing is the claim after Granted -> Fencing. From there it goes to Free
// alone.
func BeginFencing(claim *moorv1alpha1.WriterClaim) (*moorv1alpha1.WriterClaim, error) {
	if !Held(claim) || claim.Status.Phase != moorv1alpha1.ClaimGranted {
		return nil, fmt.Errorf("begin to fence volume %s: %w", claim.Spec.VolumeName, ErrTransition)
	}
	out := claim.DeepCopy()
	out.Status.Phase = moorv1alpha1.ClaimFencing
	return out, nil
}

// Free is the claim after Granted or Fencing -> Free, with the receipt of the
// epoch that ends. Only the DPU's own receipt ends one that is not being fenced.
func Free(claim *moorv1alpha1.WriterClaim, receipt moorv1alpha1.Receipt, now time.Time) (*moorv1alpha1.WriterClaim, error) {
	if !ends(claim, receipt) {
		return nil, fmt.Errorf("free volume %s with receipt %s of DPU %s under epoch %d: %w",
			claim.Spec.VolumeName, receipt.Kind, receipt.Holder, receipt.Epoch, ErrTransition)
	}
	out := claim.DeepCopy()
	s := out.Status
	s.Phase, s.Holder, s.Attachment, s.AttachmentUID = moorv1alpha1.ClaimFree, "", "", ""
	if receipt.Kind != moorv1alpha1.ReceiptDPU {
		s.Revoked = revoke(s.Revoked, receipt)
	}
	receipt.Time = metav1.NewTime(now)
	s.Receipts = keep(append(s.Receipts, receipt))
	return out, nil
}

// keep are the last receipts, as many as a claim keeps.
func keep(receipts []moorv1alpha1.Receipt) []moorv1alpha1.Receipt {
	return receipts[max(0, len(receipts)-keepReceipts):]
}

// ends reports whether the receipt is one of the claim's epoch and of the object that it was
// granted to, and of a kind that counts in its phase.
func ends(claim *moorv1alpha1.WriterClaim, receipt moorv1alpha1.Receipt) bool {
	s := claim.Status
	if !Held(claim) || receipt.Holder != s.Holder || receipt.AttachmentUID != s.AttachmentUID || receipt.Epoch != s.Epoch {
		return false
	}
	switch receipt.Kind {
	case moorv1alpha1.ReceiptDPU:
		return claim.Status.Phase == moorv1alpha1.ClaimGranted || claim.Status.Phase == moorv1alpha1.ClaimFencing
	case moorv1alpha1.ReceiptMedium, moorv1alpha1.ReceiptStorage, moorv1alpha1.ReceiptPower, moorv1alpha1.ReceiptLeaseBound, moorv1alpha1.ReceiptOperator:
		return claim.Status.Phase == moorv1alpha1.ClaimFencing
	}
	return false
}

// revoke notes a DPU that did not confirm the end of its epoch itself. Of one that showed
// the volume under no epoch there is none to note: the API server would refuse it, and with
// it the receipt.
func revoke(list []moorv1alpha1.Revoked, receipt moorv1alpha1.Receipt) []moorv1alpha1.Revoked {
	if receipt.Epoch <= 0 {
		return list
	}
	for i := range list {
		if list[i].DPU == receipt.Holder {
			list[i].Epoch = max(list[i].Epoch, receipt.Epoch)
			return list
		}
	}
	return append(list, moorv1alpha1.Revoked{DPU: receipt.Holder, Epoch: receipt.Epoch})
}
