package failover

import (
	"fmt"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// revocation is what is known of the storage's side.
type revocation struct {
	// vouched: the vendor's CSIDriver says that its ControllerUnpublish
	// revokes, so that nothing of the old DPU is accepted afterwards.
	vouched bool
	// asked: the vendor had been asked to attach, so that there is something
	// to revoke.
	asked bool
	// noticed: snap-controller has seen that the VolumeAttachment ends, so
	// that it never asks the vendor to attach again for it.
	noticed bool
	// gone: the API server has no SVVolumeAttachment any more, which the
	// vendor's attacher lets go only when ControllerUnpublish is done.
	gone bool
	// driver is the name of the CSIDriver.
	driver string
}

// prove is rule 2 for a claim that is being fenced: it returns the receipt
// that ends its epoch, or says what is missing. All arguments were read from
// the API server itself, the lease after the claim was in Fencing. mirror is nil if
// there is no VolumeAttachment, which proves nothing.
func prove(claim *moorv1alpha1.WriterClaim, mirror *storagev1alpha1.VolumeAttachment, storage revocation, lease leaseOf) (*moorv1alpha1.Receipt, string) {
	s := claim.Status
	if s == nil || s.Phase != moorv1alpha1.ClaimFencing {
		return nil, "the claim is not being fenced"
	}
	receipt := func(kind moorv1alpha1.ReceiptKind, words string) (*moorv1alpha1.Receipt, string) {
		return &moorv1alpha1.Receipt{Kind: kind, Holder: s.Holder, Epoch: s.Epoch, Message: words}, ""
	}
	if mirror != nil && (mirror.Name != s.Attachment || mirror.Spec.NodeName != s.Holder) {
		mirror = nil
	}
	if mirror != nil {
		if retired := mirror.Status.DPU; !retired.Attached && retired.RetiredEpoch >= s.Epoch && s.Epoch > 0 {
			return receipt(moorv1alpha1.ReceiptDPU, fmt.Sprintf("DPU %s withdrew the device and retired epoch %d", s.Holder, retired.RetiredEpoch))
		}
		if d := decide(mirror, claim); d.action == free {
			return &d.receipt, ""
		}
		if storage.vouched && storage.asked && storage.noticed && storage.gone && !mirror.DeletionTimestamp.IsZero() {
			return receipt(moorv1alpha1.ReceiptStorage, fmt.Sprintf("the storage revoked DPU %s: ControllerUnpublish of %s is done", s.Holder, storage.driver))
		}
	}
	if lease.over() && s.Epoch > 0 {
		return receipt(moorv1alpha1.ReceiptLeaseBound, fmt.Sprintf("DPU %s has not renewed its lease for so long that it has withdrawn by itself, or was reset", s.Holder))
	}
	if o := claim.Spec.OperatorReceipt; o != nil && o.Epoch == s.Epoch && s.Epoch > 0 {
		return receipt(moorv1alpha1.ReceiptOperator, fmt.Sprintf("%s vouches that DPU %s can no longer write: %s", o.Operator, s.Holder, o.Reason))
	}
	return nil, missing(claim, mirror, storage, lease)
}

// missing says in words what is waited for.
func missing(claim *moorv1alpha1.WriterClaim, mirror *storagev1alpha1.VolumeAttachment, storage revocation, lease leaseOf) string {
	words := fmt.Sprintf("waiting for proof that DPU %s can no longer write under epoch %d", claim.Status.Holder, claim.Status.Epoch)
	switch {
	case mirror == nil:
		words += fmt.Sprintf("; VolumeAttachment %s is gone, which proves nothing", claim.Status.Attachment)
	case storage.driver == "":
		words += "; the DPU is asked to withdraw"
	case !storage.vouched:
		words += fmt.Sprintf("; the DPU is silent, and CSIDriver %s does not carry %s=true, so the storage's word does not count", storage.driver, AnnotationRevokes)
	case !storage.asked:
		words += "; the DPU is silent, and the storage has nothing to revoke"
	case !storage.noticed:
		words += "; the DPU is silent, and snap-controller has not noticed yet that the attachment ends"
	default:
		words += fmt.Sprintf("; the DPU is silent, and CSIDriver %s is asked to revoke it", storage.driver)
	}
	if lease.given {
		words += "; the DPU withdraws by itself, and the bound of its lease is waited for"
	}
	return words + fmt.Sprintf("; an operator who knows may write spec.operatorReceipt into WriterClaim %s", claim.Name)
}
