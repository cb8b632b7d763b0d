package writer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// Seen is the highest epoch that was granted for an attachment, as it shows; 0: none.
func Seen(a *storagev1alpha1.VolumeAttachment) int64 {
	return max(a.Spec.Epoch, a.Status.DPU.Epoch, a.Status.DPU.RetiredEpoch)
}

// Behind reports whether the claim does not know of an epoch that was granted: it was
// deleted and made anew, or restored from a backup.
func Behind(claim *moorv1alpha1.WriterClaim, epoch int64) bool {
	if claim == nil || claim.Status == nil {
		return epoch > 0
	}
	return epoch > claim.Status.Epoch
}

// IsLost reports whether the claim has lost what it knew, and waits for proof.
func IsLost(claim *moorv1alpha1.WriterClaim) bool {
	return Held(claim) && claim.Status.Phase == moorv1alpha1.ClaimLost
}

// Writable reports whether the attachment's DPU may be able to write, for all that it
// says itself: it was granted an epoch, and has not given the receipt for it.
func Writable(a *storagev1alpha1.VolumeAttachment) bool {
	over := a.Status.DPU.RetiredEpoch >= a.Spec.Epoch && a.Status.DPU.RetiredEpoch >= a.Status.DPU.Epoch
	return a.Status.DPU.Attached || Seen(a) > 0 && !over
}

// MayWrite is the entry of a claim that was lost for an attachment whose DPU may be able
// to write.
func MayWrite(a *storagev1alpha1.VolumeAttachment) moorv1alpha1.LostHolder {
	return moorv1alpha1.LostHolder{DPU: a.Spec.NodeName, Attachment: a.Name, AttachmentUID: a.UID, Epoch: Seen(a)}
}

// Lose is the claim after it has turned out that it does not know of an epoch that was
// granted. Who may still write by what others know is on record, and with it the holder
// that the claim knows of. If none may, it is free; the next grant gets the epoch above.
// From whom the volume was taken while he was silent is lost as well: LostEpoch is about
// every DPU.
// What is being fenced stays so.
func Lose(claim *moorv1alpha1.WriterClaim, epoch int64, holders []moorv1alpha1.LostHolder) (*moorv1alpha1.WriterClaim, error) {
	if !Behind(claim, epoch) || Held(claim) && claim.Status.Phase != moorv1alpha1.ClaimGranted {
		return nil, fmt.Errorf("record that WriterClaim %s lost epoch %d: %w", claim.Name, epoch, ErrTransition)
	}
	out := claim.DeepCopy()
	if out.Status == nil {
		out.Status = &moorv1alpha1.WriterClaimStatus{}
	}
	s := out.Status
	holders = slices.Clone(holders)
	if Held(claim) && !slices.ContainsFunc(holders, func(h moorv1alpha1.LostHolder) bool { return h.Attachment == s.Attachment }) {
		holders = append(holders, moorv1alpha1.LostHolder{DPU: s.Holder, Attachment: s.Attachment, AttachmentUID: s.AttachmentUID, Epoch: s.Epoch})
	}
	s.Attachment, s.AttachmentUID, s.Epoch, s.LostEpoch = "", "", epoch, epoch
	await(s, holders)
	return out, nil
}

// await lets a claim that was lost wait for these; it is free if there are none. The DPU of
// the first is the holder: a DPU is told of claims by that alone.
func await(s *moorv1alpha1.WriterClaimStatus, holders []moorv1alpha1.LostHolder) {
	s.Phase, s.Holder, s.Lost = moorv1alpha1.ClaimFree, "", nil
	if len(holders) > 0 {
		s.Phase, s.Holder, s.Lost = moorv1alpha1.ClaimLost, holders[0].DPU, holders
	}
}

// lostHolder is the place of the attachment's entry in a claim that was lost; -1 if it has
// none. One that was made anew has none.
func lostHolder(claim *moorv1alpha1.WriterClaim, name string, uid types.UID) int {
	if !IsLost(claim) {
		return -1
	}
	return slices.IndexFunc(claim.Status.Lost, func(h moorv1alpha1.LostHolder) bool {
		return h.Attachment == name && h.AttachmentUID != "" && h.AttachmentUID == uid
	})
}

// LostEpoch is the epoch that a claim which was lost takes from the DPU for this
// attachment; 0 if it does not. What is on record of the attachment may be lost as well, so
// the DPU has to look at all that it shows.
func LostEpoch(dpu string, a *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) int64 {
	i := lostHolder(claim, a.Name, a.UID)
	if i < 0 || claim.Status.Lost[i].DPU != dpu {
		return 0
	}
	return max(claim.Status.Lost[i].Epoch, a.Spec.Epoch, claim.Status.LostEpoch)
}

// Recover is a claim that was lost after one of those who may write was proven to be over
// with it: its DPU has looked at all that it shows, and cleared up. With the last one the
// claim is free. It is nil if the attachment proves nothing.
func Recover(claim *moorv1alpha1.WriterClaim, a *storagev1alpha1.VolumeAttachment, now time.Time) *moorv1alpha1.WriterClaim {
	i := lostHolder(claim, a.Name, a.UID)
	if i < 0 {
		return nil
	}
	h := claim.Status.Lost[i]
	if a.Status.DPU.Attached || a.Status.DPU.ClearedEpoch < max(h.Epoch, a.Spec.Epoch) {
		return nil
	}
	return proven(claim, i, moorv1alpha1.Receipt{
		Kind: moorv1alpha1.ReceiptDPU, Holder: h.DPU, Epoch: h.Epoch,
		Message: fmt.Sprintf("DPU %s withdrew the device of attachment %s, of which the claim had lost its record", h.DPU, h.Attachment),
	}, now)
}

// proven is the claim without the entry of one that cannot write any more.
func proven(claim *moorv1alpha1.WriterClaim, i int, receipt moorv1alpha1.Receipt, now time.Time) *moorv1alpha1.WriterClaim {
	out := claim.DeepCopy()
	s := out.Status
	await(s, slices.Delete(s.Lost, i, i+1))
	if receipt.Kind != moorv1alpha1.ReceiptDPU {
		s.Revoked = revoke(s.Revoked, receipt)
	}
	receipt.Time = metav1.NewTime(now)
	s.Receipts = keep(append(s.Receipts, receipt))
	return out
}

// LostMessage says for whom a claim waits that was lost, and what to do.
func LostMessage(claim *moorv1alpha1.WriterClaim) string {
	var who []string
	for _, h := range claim.Status.Lost {
		who = append(who, fmt.Sprintf("DPU %s (VolumeAttachment %s, epoch %d)", h.DPU, h.Attachment, h.Epoch))
	}
	return fmt.Sprintf("WriterClaim %s was deleted or restored and had lost its record of epoch %d: nothing is granted before these have withdrawn the volume: %s; "+
		"delete the pods that use it there; %s", claim.Name, claim.Status.Epoch, strings.Join(who, ", "), remedy(claim))
}
