package writer

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// VouchLasts is how long an operator's word counts: what it is about may come back.
const VouchLasts = 15 * time.Minute

// ahead is by how much the clock of who writes may be ahead.
const ahead = time.Minute

// RefuseVouch says why the operator's word about the epoch of a claim that is held does not
// count now; "" if it does. It has to name whom it is about, and be fresh. answers: the DPU
// is not known to be silent and has the attachment for which it holds the claim, so that it
// can give the receipt itself.
func RefuseVouch(claim *moorv1alpha1.WriterClaim, now time.Time, answers bool) string {
	s := claim.Status
	return refuseVouch(claim.Spec.OperatorReceipt, moorv1alpha1.LostHolder{DPU: s.Holder, AttachmentUID: s.AttachmentUID, Epoch: s.Epoch}, now, answers)
}

func refuseVouch(o *moorv1alpha1.OperatorReceipt, of moorv1alpha1.LostHolder, now time.Time, answers bool) string {
	const none = "spec.operatorReceipt does not count: "
	switch {
	case o == nil:
		return none + "there is none"
	case o.Epoch != of.Epoch:
		return none + fmt.Sprintf("it names epoch %d, and epoch %d is held", o.Epoch, of.Epoch)
	}
	if lacks := lacking(o, of.AttachmentUID); lacks != "" {
		return none + fmt.Sprintf("it lacks %s; it has to name holder %s, attachmentUID %q and the time at which it is written", lacks, of.DPU, of.AttachmentUID)
	}
	switch age := now.Sub(o.Time.Time); {
	case o.Holder != of.DPU || o.AttachmentUID != of.AttachmentUID:
		return none + fmt.Sprintf("it names DPU %s and attachment UID %q, and DPU %s holds the right to write for %q", o.Holder, o.AttachmentUID, of.DPU, of.AttachmentUID)
	case age < -ahead:
		return none + fmt.Sprintf("it was written at %s, which has not come yet", o.Time.UTC().Format(time.RFC3339))
	case age >= VouchLasts:
		return none + fmt.Sprintf("it was written at %s and counts for %s: if it is still so, write it anew", o.Time.UTC().Format(time.RFC3339), VouchLasts)
	case answers:
		return none + fmt.Sprintf("DPU %s is not silent, so it can withdraw the volume and say so itself: delete the pods or the attachment", of.DPU)
	}
	return ""
}

// lacking are the fields without which a word does not say which DPU cannot write, or
// counts for ever.
func lacking(o *moorv1alpha1.OperatorReceipt, uid types.UID) string {
	var out []string
	if o.Holder == "" {
		out = append(out, "holder")
	}
	if o.AttachmentUID == "" && uid != "" {
		out = append(out, "attachmentUID")
	}
	if o.Time == nil {
		out = append(out, "time")
	}
	return strings.Join(out, ", ")
}

// RecoverByVouch is a claim that was lost after an operator has vouched for one of those who
// may write. If the word does not count it is nil; answers is as for RefuseVouch.
func RecoverByVouch(claim *moorv1alpha1.WriterClaim, i int, now time.Time, answers bool) *moorv1alpha1.WriterClaim {
	if !IsLost(claim) || i >= len(claim.Status.Lost) {
		return nil
	}
	h := claim.Status.Lost[i]
	of := h
	of.Epoch = claim.Status.Epoch
	if refuseVouch(claim.Spec.OperatorReceipt, of, now, answers) != "" {
		return nil
	}
	return proven(claim, i, moorv1alpha1.Receipt{
		Kind: moorv1alpha1.ReceiptOperator, Holder: h.DPU, AttachmentUID: h.AttachmentUID, Epoch: h.Epoch, Message: vouchMessage(claim.Spec.OperatorReceipt, h.DPU),
	}, now)
}

// vouchCommand is what a person can do who knows that this DPU cannot write any more: it
// names holder, attachment and epoch as they have to be named, and the moment at which it is
// run. Only the reason is left to write.
func vouchCommand(claim *moorv1alpha1.WriterClaim, of moorv1alpha1.LostHolder) string {
	return fmt.Sprintf("an operator who knows that DPU %s cannot write may write spec.operatorReceipt into WriterClaim %s, in the DPU cluster: "+
		`kubectl -n %s patch writerclaim %s --type merge -p '{"spec":{"operatorReceipt":{"epoch":%d,"holder":"%s","attachmentUID":"%s","time":"'$(date -u +%%FT%%TZ)'","operator":"'$(kubectl auth whoami -o jsonpath='{.status.userInfo.username}')'","reason":"WHY"}}}'`,
		of.DPU, claim.Name, claim.Namespace, claim.Name, of.Epoch, of.DPU, of.AttachmentUID)
}

// FreeByVouch is a claim that is held for an attachment which is gone from both clusters, or
// from the host cluster while its DPU is silent, after an operator has vouched for its holder;
// of a claim that was lost, for the first of those who may write. No fence is begun for it:
// there is no host of which one could be told, and the DPU does not answer. It is nil if the word does not
// count; then refused says why, "" if there is none.
func FreeByVouch(claim *moorv1alpha1.WriterClaim, now time.Time) (freed *moorv1alpha1.WriterClaim, refused string) {
	if !Held(claim) || claim.Spec.OperatorReceipt == nil {
		return nil, ""
	}
	if IsLost(claim) {
		return RecoverByVouch(claim, 0, now, false), ""
	}
	if refused = RefuseVouch(claim, now, false); refused != "" {
		return nil, refused
	}
	fencing := claim.DeepCopy()
	fencing.Status.Phase = moorv1alpha1.ClaimFencing
	freed, err := Free(fencing, *receiptOf(claim, moorv1alpha1.ReceiptOperator, vouchMessage(claim.Spec.OperatorReceipt, claim.Status.Holder)), now)
	if err != nil {
		return nil, err.Error()
	}
	return freed, ""
}

// HeldAttachment is the VolumeAttachment by which the holder of a claim can answer, or the
// first of those who may write.
func HeldAttachment(claim *moorv1alpha1.WriterClaim) string {
	if IsLost(claim) && len(claim.Status.Lost) > 0 {
		return claim.Status.Lost[0].Attachment
	}
	return claim.Status.Attachment
}

func vouchMessage(o *moorv1alpha1.OperatorReceipt, dpu string) string {
	return fmt.Sprintf("%s vouches, at %s, that DPU %s can no longer write: %s", o.Operator, o.Time.UTC().Format(time.RFC3339), dpu, o.Reason)
}
