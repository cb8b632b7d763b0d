package fence

import (
	"fmt"

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
// claim is nil if there is none. Both were read from the API server itself.
func decide(attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) decision {
	switch {
	case attachment.DeletionTimestamp.IsZero():
		return decision{action: wait}
	case controllerutil.ContainsFinalizer(attachment, storagev1alpha1.FinalizerDPUAttachment):
		return decision{action: wait}
	case attachment.Status.DPU.Attached:
		// Somebody took the finalizer away by force: no receipt.
		return decision{action: wait}
	case claim == nil || claim.Status == nil || claim.Status.Phase == moorv1alpha1.ClaimFree:
		return decision{action: release}
	case claim.Status.Attachment != attachment.Name || claim.Status.Holder != attachment.Spec.NodeName:
		return decision{action: release}
	}
	return decision{action: free, receipt: moorv1alpha1.Receipt{
		Kind: moorv1alpha1.ReceiptDPU, Holder: claim.Status.Holder, Epoch: claim.Status.Epoch,
		Message: fmt.Sprintf("DPU %s withdrew the device and released attachment %s", claim.Status.Holder, attachment.Name),
	}}
}
