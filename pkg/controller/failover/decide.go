package failover

import (
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// action is what to do about an attachment and the claim of its volume.
type action int

const (
	// wait: the DPU may still be able to write; or the attachment is in use.
	wait action = iota
	// free: there is a receipt; the claim becomes Free, then the attachment
	// is let go.
	free
	// release: the claim is not this attachment's; the attachment is let go.
	release
)

// decision is what decide says.
type decision struct {
	action  action
	receipt moorv1alpha1.Receipt
}

// decide is rule 2, receipt A, for an orderly detach. The only proof that it
// takes is the DPU's own: the node driver removes its finalizer after the
// namespace is detached and in-flight I/O has ended, and it puts it there
// before it shows anything, which the API server forbids once the attachment
// is being deleted. So: being deleted, without that finalizer, and not shown,
// means that this DPU cannot write for this attachment now or later.
//
// The finalizer also waits for the vendor's plugin to remove its device. Where
// that does not answer, the DPU's word that it has retired the epoch is the same
// proof: it is written after the namespace is detached, the DPU never shows the
// volume under that epoch again, and nobody grants another one to an attachment
// that is being deleted.
//
// claim is nil if there is none. Both were read from the API server itself.
func decide(attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) decision {
	switch {
	case attachment.DeletionTimestamp.IsZero():
		return decision{action: wait}
	case attachment.Status.DPU.Attached:
		// Shown still; or somebody took the finalizer away by force: no receipt.
		return decision{action: wait}
	case controllerutil.ContainsFinalizer(attachment, storagev1alpha1.FinalizerDPUAttachment) && !retired(attachment, claim):
		return decision{action: wait}
	case !holds(attachment, claim):
		return decision{action: release}
	}
	return decision{action: free, receipt: moorv1alpha1.Receipt{
		Kind: moorv1alpha1.ReceiptDPU, Holder: claim.Status.Holder, Epoch: claim.Status.Epoch,
		Message: fmt.Sprintf("DPU %s withdrew the device and released attachment %s", claim.Status.Holder, attachment.Name),
	}}
}

// holds reports whether the claim is the attachment's own.
func holds(attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) bool {
	return claim != nil && claim.Status != nil && claim.Status.Phase != moorv1alpha1.ClaimFree &&
		claim.Status.Attachment == attachment.Name && claim.Status.Holder == attachment.Spec.NodeName
}

// retired reports whether the DPU has said that every epoch is over under which
// the attachment ever had the right to write, and that there was one.
func retired(attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) bool {
	epoch := attachment.Spec.Epoch
	if holds(attachment, claim) {
		epoch = max(epoch, claim.Status.Epoch)
	}
	return epoch > 0 && attachment.Status.DPU.RetiredEpoch >= epoch
}

// vendorGrace is how long the vendor's plugin may take to remove its device
// before the attachment is looked at without it: mostly the node driver lets go
// at once, and two who write at the same time get into each other's way.
const vendorGrace = 2 * time.Second

// early is how long to wait before a decision that rests on the retired epoch
// alone is carried out; 0 if it does not, or has waited.
func early(attachment *storagev1alpha1.VolumeAttachment, d decision, now time.Time) time.Duration {
	if d.action == wait || !controllerutil.ContainsFinalizer(attachment, storagev1alpha1.FinalizerDPUAttachment) {
		return 0
	}
	// A server whose clock is ahead shall not make it longer.
	return min(vendorGrace, max(0, vendorGrace-now.Sub(attachment.DeletionTimestamp.Time)))
}
