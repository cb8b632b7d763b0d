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
// deleted and made anew, or restored from a backup. One that was made anew says itself
// after which epoch.
func Behind(claim *moorv1alpha1.WriterClaim, epoch int64) bool {
	if claim == nil {
		return epoch > 0
	}
	epoch = max(epoch, claim.Spec.AfterEpoch)
	if claim.Status == nil {
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
	return a.Status.DPU.Attached || a.Status.DPU.RetiredEpoch < max(a.Spec.Epoch, a.Status.DPU.Epoch)
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
	epoch = max(epoch, claim.Spec.AfterEpoch)
	out := claim.DeepCopy()
	if out.Status == nil {
		out.Status = &moorv1alpha1.WriterClaimStatus{}
	}
	s := out.Status
	holders = slices.Clone(holders)
	if Held(claim) && !slices.ContainsFunc(holders, func(h moorv1alpha1.LostHolder) bool { return h.Attachment == s.Attachment && h.DPU == s.Holder }) {
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
	if a.Status.DPU.Attached || a.Status.DPU.ClearedEpoch < LostEpoch(h.DPU, a, claim) {
		return nil
	}
	return proven(claim, i, moorv1alpha1.Receipt{
		Kind: moorv1alpha1.ReceiptDPU, Holder: h.DPU, AttachmentUID: h.AttachmentUID, Epoch: h.Epoch,
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

// Mark is what the host cluster remembers of a grant: it is written after the claim was
// granted, and before the epoch is written where a DPU reads it. So no epoch is shown that
// is above the mark, and the mark is never above a claim that has kept its record.
func Mark(to Holder, epoch int64) *storagev1alpha1.LastGrant {
	return &storagev1alpha1.LastGrant{Epoch: epoch, DPU: to.DPU, Attachment: to.Attachment, AttachmentUID: to.UID}
}

// Marked reports whether the mark says of this very grant. One that says of another grant
// of the same epoch, or of a later one, is not to be written over: the API server refuses it.
func Marked(last *storagev1alpha1.LastGrant, to Holder, epoch int64) bool {
	return last != nil && last.Epoch == epoch && last.DPU == to.DPU && last.Attachment == to.Attachment && last.AttachmentUID == to.UID
}

// MarkedEpoch is the highest epoch that the mark stands for beside this claim; 0 if there
// is no mark. A claim that has granted the epoch of the mark to another has lost its record
// too, and that epoch was granted twice: both are over with the one above.
func MarkedEpoch(last *storagev1alpha1.LastGrant, claim *moorv1alpha1.WriterClaim) int64 {
	switch {
	case last == nil:
		return 0
	case Held(claim) && bound(claim) && claim.Status.Epoch == last.Epoch && claim.Status.AttachmentUID != last.AttachmentUID:
		return last.Epoch + 1
	}
	return last.Epoch
}

// Remembered are those who may write by what others know, and with them the DPU of the
// mark, unless its epoch is over, or its attachment is there and speaks for itself. It is
// the only one that the mark has to name: it was granted the epoch after those before it
// were proven to be over.
func Remembered(holders []moorv1alpha1.LostHolder, mirrors []storagev1alpha1.VolumeAttachment, last *storagev1alpha1.LastGrant) []moorv1alpha1.LostHolder {
	if last == nil || last.Over || slices.ContainsFunc(mirrors, func(m storagev1alpha1.VolumeAttachment) bool {
		return m.UID == last.AttachmentUID && Seen(&m) >= last.Epoch
	}) {
		return holders
	}
	marked := moorv1alpha1.LostHolder{DPU: last.DPU, Attachment: last.Attachment, AttachmentUID: last.AttachmentUID, Epoch: last.Epoch}
	i := slices.IndexFunc(holders, func(h moorv1alpha1.LostHolder) bool { return h.DPU == marked.DPU && h.Attachment == marked.Attachment })
	if i < 0 {
		return append(slices.Clone(holders), marked)
	}
	out := slices.Clone(holders)
	out[i].Epoch = max(out[i].Epoch, marked.Epoch)
	if out[i].AttachmentUID == "" {
		out[i].AttachmentUID = marked.AttachmentUID
	}
	return out
}

// EndMark is the mark after its epoch is over for good: the claim is free, and of the same
// epoch, so there was a receipt and no grant since. It is nil if it is not, or the mark says
// so already. The claim has to be read from the API server itself.
func EndMark(last *storagev1alpha1.LastGrant, claim *moorv1alpha1.WriterClaim) *storagev1alpha1.LastGrant {
	if last == nil || last.Over || claim == nil || claim.Status == nil || Held(claim) || claim.Status.Epoch != last.Epoch {
		return nil
	}
	out := *last
	out.Over = true
	return &out
}

// Asks reports whether a claim that was lost waits for the DPU of this attachment, whose
// VolumeAttachment is gone or was never there as far as the DPU cluster knows: another may
// be made, by which the DPU can say that it has cleared up. It gives no right.
func Asks(claim *moorv1alpha1.WriterClaim, h Holder) bool { return asked(claim, h) >= 0 }

// asked is the place of the entry that a DPU can answer by an attachment of this name; -1
// if there is none.
func asked(claim *moorv1alpha1.WriterClaim, h Holder) int {
	if !IsLost(claim) {
		return -1
	}
	return slices.IndexFunc(claim.Status.Lost, func(l moorv1alpha1.LostHolder) bool {
		return l.Attachment == h.Attachment && l.DPU == h.DPU && (h.UID == "" || l.AttachmentUID != h.UID)
	})
}

// Adopt is a claim that was lost after the DPU of one of those who may write is asked by
// another VolumeAttachment of the name: what the DPU says there is about all that it shows,
// and about no attachment, so it serves. nil if nothing is asked by it.
func Adopt(claim *moorv1alpha1.WriterClaim, a *storagev1alpha1.VolumeAttachment) *moorv1alpha1.WriterClaim {
	i := asked(claim, HolderOf(a))
	if i < 0 || a.UID == "" || !a.DeletionTimestamp.IsZero() || lostHolder(claim, a.Name, a.UID) >= 0 {
		return nil
	}
	out := claim.DeepCopy()
	out.Status.Lost[i].AttachmentUID = a.UID
	return out
}

// LostMessage says for whom a claim waits that was lost, and what to do. An operator can
// vouch for one at a time: the word of the first is told.
func LostMessage(claim *moorv1alpha1.WriterClaim) string {
	var who []string
	for _, h := range claim.Status.Lost {
		who = append(who, fmt.Sprintf("DPU %s (VolumeAttachment %s, epoch %d)", h.DPU, h.Attachment, h.Epoch))
	}
	do := ""
	if len(claim.Status.Lost) > 0 {
		first := claim.Status.Lost[0]
		first.Epoch = claim.Status.Epoch
		do = vouchCommand(claim, first)
	}
	return fmt.Sprintf("WriterClaim %s was deleted or restored and had lost its record of epoch %d: nothing is granted before these have withdrawn the volume: %s; "+
		"delete the pods that use it there; %s", claim.Name, claim.Status.Epoch, strings.Join(who, ", "), do)
}
