package writer

import (
	"fmt"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// FencedBelow is the epoch below which the storage accepts nothing of the volume, by
// the word that was written of this very attachment; 0 if there is none.
func FencedBelow(a *storagev1alpha1.VolumeAttachment) int64 {
	if f := a.Status.Fence; f != nil && a.UID != "" && f.AttachmentUID == a.UID {
		return f.Epoch
	}
	return 0
}

// TakesEpochs reports whether the storage knows under which epoch the device of the
// attachment writes: its DPU has said so.
func TakesEpochs(a *storagev1alpha1.VolumeAttachment) bool { return a.Status.DPU.OpenEpoch != nil }

// Unfenced is the part of rule 2 for a device that the storage opens under epochs: it
// says why the DPU may not begin to show it under the epoch of the attachment; "" if it
// may. Before the storage has said that it accepts nothing of any earlier epoch, what
// an earlier holder has sent may still arrive. The attachment has to be read from the
// API server itself.
//
// What is shown under this epoch already is not withdrawn for it: it was shown before
// its vendor knew epochs.
func Unfenced(a *storagev1alpha1.VolumeAttachment) string {
	if a.Spec.Epoch > 0 && FencedBelow(a) >= a.Spec.Epoch {
		return ""
	}
	return fmt.Sprintf("waits for snap-external-attacher: the storage has not said yet that it accepts nothing of volume %s below epoch %d", a.VolumeName(), a.Spec.Epoch)
}

// ToFence is the epoch below which the storage has to refuse all of the volume, as the
// attachment asks for it, and there is no word of that yet; 0 if nothing is asked for.
//
// For a grant that is the epoch itself, so that nothing of an earlier holder arrives
// later. A device that is shown has to be open under the epoch by then: it would be
// shut out with the others. For a right that is being taken it is what FenceEpoch says.
func ToFence(a *storagev1alpha1.VolumeAttachment) int64 {
	want := a.Spec.FenceEpoch
	if dpu := a.Status.DPU; a.DeletionTimestamp.IsZero() && !a.IsReplica() && TakesEpochs(a) && (!dpu.Attached || *dpu.OpenEpoch >= a.Spec.Epoch) {
		want = max(want, a.Spec.Epoch)
	}
	if want <= FencedBelow(a) {
		return 0
	}
	return want
}

// FenceFor is the epoch below which the storage is to be asked to refuse all of the
// volume while the claim is being fenced from the holder of the attachment: the next
// grant's. 0 if its storage knows no epochs, if that was asked for, or if nothing is
// being fenced. What is asked for shuts the holder out, so it is not asked for before
// the claim is in Fencing, from where it goes to Free alone.
func FenceFor(claim *moorv1alpha1.WriterClaim, a *storagev1alpha1.VolumeAttachment) int64 {
	if a == nil || !TakesEpochs(a) || !named(claim, HolderOf(a)) || claim.Status.Phase != moorv1alpha1.ClaimFencing || claim.Status.Epoch <= 0 {
		return 0
	}
	if a.Spec.FenceEpoch > claim.Status.Epoch {
		return 0
	}
	return claim.Status.Epoch + 1
}
