package writer

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// Revocation is what is known of the storage's side.
type Revocation struct {
	// Vouched: the vendor's CSIDriver says that its ControllerUnpublish
	// revokes, so that nothing of the old DPU is accepted afterwards.
	Vouched bool
	// Asked: the vendor had been asked to attach, so that there is something
	// to revoke.
	Asked bool
	// Noticed: snap-controller has seen that the VolumeAttachment ends, so
	// that it never asks the vendor to attach again for it.
	Noticed bool
	// Gone: the API server has no SVVolumeAttachment any more, which the
	// vendor's attacher lets go only when ControllerUnpublish is done. It is no
	// proof without the attacher's word, in the status of the attachment.
	Gone bool
	// Driver is the name of the CSIDriver; "" while the storage is not asked: the DPU is heard,
	// and reaches the storage.
	Driver string
	// Says is what its attacher says of why it is not done yet; "" if it says nothing.
	Says string
	// Cut: the storage is asked since the DPU has lost its way there; else since it is silent.
	Cut bool
}

// why says why the storage is asked.
func (r Revocation) why() string {
	if r.Cut {
		return "the DPU does not reach the storage"
	}
	return "the DPU is silent"
}

// asked says that the storage is asked, and what it says of that.
func (r Revocation) asked() string {
	out := fmt.Sprintf("; %s, and CSIDriver %s is asked to revoke it", r.why(), r.Driver)
	if r.Says != "" {
		out += ": " + r.Says
	}
	return out
}

// TakesRevocation reports whether the vendor's attacher may write into the attachment that the volume was taken
// back from the DPU: the attachment ends and its claim may still be held, and snap-controller has noticed that: before
// it may have the vendor asked again.
func TakesRevocation(a *storagev1alpha1.VolumeAttachment, dpu string) bool {
	return !a.DeletionTimestamp.IsZero() && a.Status.StorageDetaching && a.Spec.NodeName == dpu &&
		controllerutil.ContainsFinalizer(a, storagev1alpha1.FinalizerWriterClaim)
}

// Revoked writes into the attachment that the storage has taken the volume back from the node, as the vendor names it, at
// a time. What is said already stays as it is: the answer was lost, and it is no news.
func Revoked(a *storagev1alpha1.VolumeAttachment, nodeID string, now time.Time) {
	if said := a.Status.Revocation; said != nil && said.AttachmentUID == a.UID && said.NodeID == nodeID {
		return
	}
	a.Status.Revocation = &storagev1alpha1.StorageRevocation{AttachmentUID: a.UID, NodeID: nodeID, Time: metav1.NewTime(now)}
}

// Withheld is the epoch for whose end the storage's word about the DPU may be needed: the claim is held for this very
// object under the epoch that it has, and its DPU has not let go; 0 if that is not so. Both were read from the API
// server itself.
func Withheld(a *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) int64 {
	if !Holds(claim, HolderOf(a)) || !bound(claim) || claim.Status.Epoch != a.Spec.Epoch || Released(a, claim) {
		return 0
	}
	return claim.Status.Epoch
}

// confirmed reports whether the vendor's attacher has written of this very attachment
// that ControllerUnpublish is done: that the object of the request is gone is no word
// of the attacher, since its finalizer can be taken off by force.
func confirmed(a *storagev1alpha1.VolumeAttachment) bool {
	return a.Status.Revocation != nil && a.UID != "" && a.Status.Revocation.AttachmentUID == a.UID
}

// revoked reports whether the storage has revoked the DPU.
func (r Revocation) revoked() bool { return r.Vouched && r.Asked && r.Noticed && r.Gone }

// Evidence is what is known of the holder of a claim that is being fenced. All of
// it was read from the API server itself, the lease after the claim was in Fencing.
type Evidence struct {
	// Attachment is nil if there is none, which proves nothing.
	Attachment *storagev1alpha1.VolumeAttachment
	Storage    Revocation
	Lease      Lease
	// Power of the holder; nil while it is not asked, as other proofs come sooner.
	Power *Power
	// Operator: the operator's word about the claim counts now, see RefuseVouch.
	Operator bool
	// Refused says why it does not; "" if it does, or there is none.
	Refused string
}

// own reports whether the attachment is the one that holds the claim, so that what its
// DPU says there counts.
func (e Evidence) own(claim *moorv1alpha1.WriterClaim) bool {
	return e.Attachment != nil && Holds(claim, HolderOf(e.Attachment))
}

// PowerAlone reports whether nothing but the power of the silent DPU can prove that its epoch
// is over, a person's word aside: its storage neither revokes nor knows epochs, and it has
// given no lease.
func (e Evidence) PowerAlone() bool {
	silent := e.Storage.Driver != "" && !e.Storage.Cut
	return silent && !e.Storage.Vouched && !e.Lease.Given && (e.Attachment == nil || !TakesEpochs(e.Attachment))
}

// proof is one way to prove that a holder can no longer write. It returns the
// message of the receipt; "" if it proves nothing.
type proof struct {
	kind moorv1alpha1.ReceiptKind
	of   func(*moorv1alpha1.WriterClaim, Evidence) string
}

// proofs are those of rule 3. The storage's word about the epoch is the strongest, and
// the DPU's comes before it since it leaves nothing for that DPU to clear up.
var proofs = []proof{
	{moorv1alpha1.ReceiptDPU, retiredByDPU},
	{moorv1alpha1.ReceiptDPU, releasedByDPU},
	{moorv1alpha1.ReceiptMedium, fencedAtMedium},
	{moorv1alpha1.ReceiptStorage, revokedByStorage},
	{moorv1alpha1.ReceiptPower, powerless},
	{moorv1alpha1.ReceiptLeaseBound, lapsed},
	{moorv1alpha1.ReceiptOperator, vouchedByOperator},
}

// Prove is rule 3 for a claim that is being fenced: it returns the receipt that
// ends its epoch, or says what is missing.
func Prove(claim *moorv1alpha1.WriterClaim, e Evidence) (*moorv1alpha1.Receipt, string) {
	if !Held(claim) || claim.Status.Phase != moorv1alpha1.ClaimFencing {
		return nil, "the claim is not being fenced"
	}
	if e.Attachment != nil && !named(claim, HolderOf(e.Attachment)) {
		e.Attachment = nil
	}
	for _, p := range proofs {
		if message := p.of(claim, e); message != "" {
			return receiptOf(claim, p.kind, message), ""
		}
	}
	return nil, missing(claim, e)
}

func receiptOf(claim *moorv1alpha1.WriterClaim, kind moorv1alpha1.ReceiptKind, message string) *moorv1alpha1.Receipt {
	return &moorv1alpha1.Receipt{Kind: kind, Holder: claim.Status.Holder, AttachmentUID: claim.Status.AttachmentUID, Epoch: claim.Status.Epoch, Message: message}
}

func retiredByDPU(claim *moorv1alpha1.WriterClaim, e Evidence) string {
	if !e.own(claim) || claim.Status.Epoch <= 0 {
		return ""
	}
	dpu := e.Attachment.Status.DPU
	if dpu.Attached || dpu.RetiredEpoch < claim.Status.Epoch {
		return ""
	}
	return fmt.Sprintf("DPU %s withdrew the device and retired epoch %d", claim.Status.Holder, dpu.RetiredEpoch)
}

func releasedByDPU(claim *moorv1alpha1.WriterClaim, e Evidence) string {
	if !e.own(claim) || !releases(e.Attachment, claim) {
		return ""
	}
	return releasedMessage(claim, e.Attachment)
}

// fencedAtMedium is about the volume and the epoch, not about a DPU: it holds whatever
// the DPU does, so it needs not be silent. The storage knows no VolumeAttachments, so
// that of one which was made anew by the name serves as well.
func fencedAtMedium(claim *moorv1alpha1.WriterClaim, e Evidence) string {
	if e.Attachment == nil || claim.Status.Epoch <= 0 || FencedBelow(e.Attachment) <= claim.Status.Epoch {
		return ""
	}
	return fmt.Sprintf("the storage accepts nothing of volume %s below epoch %d any more", claim.Spec.VolumeName, FencedBelow(e.Attachment))
}

// revokedByStorage is about the DPU and the volume: the storage knows no VolumeAttachments,
// so one of the same name serves that was made in the place of the one that held the claim.
func revokedByStorage(claim *moorv1alpha1.WriterClaim, e Evidence) string {
	if e.Attachment == nil || e.Attachment.DeletionTimestamp.IsZero() || !e.Storage.revoked() || !confirmed(e.Attachment) {
		return ""
	}
	return fmt.Sprintf("the storage revoked DPU %s: the attacher of %s has said so, of node %s", claim.Status.Holder, e.Storage.Driver, e.Attachment.Status.Revocation.NodeID)
}

func lapsed(claim *moorv1alpha1.WriterClaim, e Evidence) string {
	if !e.Lease.Over() || claim.Status.Epoch <= 0 {
		return ""
	}
	return fmt.Sprintf("DPU %s has not renewed its lease for so long that it has withdrawn by itself, or was reset", claim.Status.Holder)
}

// powerless is about the machine of the DPU that holds the claim, whatever its VolumeAttachment
// says.
func powerless(claim *moorv1alpha1.WriterClaim, e Evidence) string {
	if e.Power == nil || !e.Power.Asked || claim.Status.Epoch <= 0 {
		return ""
	}
	proven, _ := JudgePower(*e.Power)
	if proven == "" {
		return ""
	}
	return fmt.Sprintf("DPU %s has lost all that it had: %s", claim.Status.Holder, proven)
}

func vouchedByOperator(claim *moorv1alpha1.WriterClaim, e Evidence) string {
	if !e.Operator || claim.Spec.OperatorReceipt == nil || claim.Status.Epoch <= 0 {
		return ""
	}
	return vouchMessage(claim.Spec.OperatorReceipt, claim.Status.Holder)
}

// missing says what is waited for.
func missing(claim *moorv1alpha1.WriterClaim, e Evidence) string {
	message := fmt.Sprintf("waiting for proof that DPU %s can no longer write under epoch %d", claim.Status.Holder, claim.Status.Epoch)
	switch storage := e.Storage; {
	case e.Attachment == nil:
		message += fmt.Sprintf("; VolumeAttachment %s is gone, which proves nothing", claim.Status.Attachment)
	case !e.own(claim):
		message += fmt.Sprintf("; VolumeAttachment %s was made anew (UID %s, not %s), so it proves nothing of its DPU", claim.Status.Attachment, e.Attachment.UID, claim.Status.AttachmentUID)
	case storage.Driver == "":
		message += "; the DPU is asked to withdraw"
		if e.Attachment.Spec.FenceEpoch > claim.Status.Epoch {
			message += ", and the storage to accept nothing of this epoch"
		}
	case !storage.Vouched:
		message += fmt.Sprintf("; %s, and CSIDriver %s does not carry %s=true, so the storage's word does not count", storage.why(), storage.Driver, storagev1alpha1.AnnotationRevokes)
	case !storage.Asked:
		message += "; " + storage.why() + ", and the storage has nothing to revoke"
	case !storage.Noticed:
		message += "; " + storage.why() + ", and snap-controller has not noticed yet that the attachment ends"
	case storage.Gone && !confirmed(e.Attachment):
		message += fmt.Sprintf("; %s, and SVVolumeAttachment %s is gone without the word of the attacher of CSIDriver %s that the volume was revoked, which proves nothing", storage.why(), claim.Status.Attachment, storage.Driver)
	default:
		message += storage.asked()
	}
	if e.Lease.Given {
		message += "; the DPU withdraws by itself, and the bound of its lease is waited for"
	}
	message += e.Power.Words()
	if e.Refused != "" {
		return message + "; " + e.Refused
	}
	return message + "; " + remedy(claim)
}

// remedy says what a person can do where no proof comes of the holder.
func remedy(claim *moorv1alpha1.WriterClaim) string {
	s := claim.Status
	return vouchCommand(claim, moorv1alpha1.LostHolder{DPU: s.Holder, AttachmentUID: s.AttachmentUID, Epoch: s.Epoch})
}
