package writer

import (
	"encoding/json"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// OverWithoutDPU reports whether the epoch of the attachment is over, and on record that
// its DPU has to clear up before the storage is opened to it again: so the finalizers may
// be taken off for a DPU that does not answer. It is on record with each receipt that is
// not the DPU's own, and where Disown has put it.
func OverWithoutDPU(attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) bool {
	if !Detaching(attachment) && !Over(attachment) || claim == nil || Holds(claim, HolderOf(attachment)) {
		return false
	}
	epoch := claim.Status.RevokedEpoch(attachment.Spec.NodeName)
	return epoch != 0 && epoch >= attachment.Spec.Epoch
}

// NeverGranted reports whether an attachment goes for which there never was a right to write:
// that of a replica which was not promoted. Its DPU has shown nothing for it, since no DPU
// shows a volume with a single writer before the epoch stands on the attachment, and an epoch
// that stood there never goes away. What the cluster forgot, if it was restored, is not known:
// a claim that was made anew is lost first, and one who may write of a claim that was lost is asked.
func NeverGranted(attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) bool {
	return Detaching(attachment) && attachment.Spec.Epoch == 0 && attachment.Status.DPU.Epoch == 0 && !attachment.Status.DPU.Attached &&
		claim != nil && !Behind(claim, 0) && !Holds(claim, HolderOf(attachment)) && lostHolder(claim, attachment.Name, attachment.UID) < 0
}

// Disown is the claim after it is on record that a DPU has to clear up which is silent, and has
// retired the epoch of the attachment before, or was never granted one for it. It shows nothing, so
// this adds nothing to a receipt; but its vendor's plugin may have the device still,
// and what is known of that goes with the attachment. A DPU that holds the claim again is not to
// withdraw what it has now.
func Disown(claim *moorv1alpha1.WriterClaim, attachment *storagev1alpha1.VolumeAttachment) (*moorv1alpha1.WriterClaim, error) {
	dpu, epoch := attachment.Spec.NodeName, attachment.Spec.Epoch
	out, never := claim.DeepCopy(), NeverGranted(attachment, claim)
	if never {
		if out.Status == nil { // it is written all the same: the first grant of all may come in between
			out.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree}
		}
		epoch = out.Status.Epoch // 0 if no DPU has ever shown anything
	}
	if !never && !Over(attachment) || out.Status == nil || epoch > out.Status.Epoch || Held(claim) && claim.Status.Holder == dpu {
		return nil, fmt.Errorf("record that DPU %s has to clear up volume %s after epoch %d: %w", dpu, claim.Spec.VolumeName, epoch, ErrTransition)
	}
	out.Status.Revoked = revoke(out.Status.Revoked, moorv1alpha1.Receipt{Holder: dpu, Epoch: epoch})
	return out, nil
}

// LeftBySilent says what is waited for while an attachment goes whose DPU is silent, and what a
// person can do if that does not come back; "" if it goes by itself, or a failover tells. claim is
// nil of a volume that several may write.
func LeftBySilent(a *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) string {
	says := fmt.Sprintf("DPU %s is silent, and has not withdrawn volume %s; ", a.Spec.NodeName, a.VolumeName())
	switch {
	case Holds(claim, HolderOf(a)) && claim.Status.Phase == moorv1alpha1.ClaimGranted:
		return says + remedy(claim)
	case SingleWriter(a, nil) || a.DeletionTimestamp.IsZero() || !controllerutil.ContainsFinalizer(a, storagev1alpha1.FinalizerDPUAttachment):
		return ""
	}
	stay, _ := json.Marshal(slices.DeleteFunc(slices.Clone(a.Finalizers), func(f string) bool { return f == storagev1alpha1.FinalizerDPUAttachment })) // of strings: no error
	return says + fmt.Sprintf("if that DPU has no power, and does not come back, have the VolumeAttachment go without it, in the DPU cluster: "+
		`kubectl -n %s patch volumeattachments.storage.dpu.nvidia.com %s --type merge -p '{"metadata":{"finalizers":%s}}'`, a.Namespace, a.Name, stay)
}

// Detaching reports whether the attachment is on its way out and still tied to a
// claim.
func Detaching(a *storagev1alpha1.VolumeAttachment) bool {
	return !a.DeletionTimestamp.IsZero() && controllerutil.ContainsFinalizer(a, storagev1alpha1.FinalizerWriterClaim)
}
