package dpu

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// singleWriter reports whether the volume may be written from one host at a
// time, so that a claim is needed. The marks of a claim on the attachment are
// enough; a volume that is gone (nil) is judged by them alone, and is not
// exposed anew in any case.
func singleWriter(attachment *storagev1alpha1.VolumeAttachment, volume *storagev1alpha1.Volume) bool {
	if attachment.Spec.Epoch != 0 || controllerutil.ContainsFinalizer(attachment, storagev1alpha1.FinalizerWriterClaim) {
		return true
	}
	return volume != nil && provisioner.SingleNode(volume.Spec.Request.AccessModes)
}

// replica reports whether the attachment only keeps the volume ready here.
func replica(attachment *storagev1alpha1.VolumeAttachment) bool {
	return attachment.Spec.Role == storagev1alpha1.RoleReplica
}

// wantsAttached reports whether a replica is to be shown to its host: it may
// be where several hosts may have the volume at once.
func wantsAttached(attachment *storagev1alpha1.VolumeAttachment) bool {
	return attachment.Spec.Warmth == storagev1alpha1.WarmthAttached
}

// fencedEpoch returns the epoch that is being taken from node, for this
// attachment; 0 if none is.
func fencedEpoch(node string, attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) int64 {
	if claim == nil || claim.Status == nil || claim.Status.Phase != moorv1alpha1.ClaimFencing ||
		claim.Status.Holder != node || claim.Status.Attachment != attachment.Name {
		return 0
	}
	return claim.Status.Epoch
}

// refusal decides whether node may expose a single-writer volume for the
// attachment: "" if it may, or else why not, in words. Only a claim that is
// granted to this node, for this attachment, under its epoch, allows it; never
// an epoch that was retired here, and never a replica. claim is nil if there is
// none; it has to be read from the API server itself.
func refusal(node string, attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) string {
	volume := volumeName(attachment)
	if replica(attachment) {
		return fmt.Sprintf("a replica of volume %s: kept ready, not shown", volume)
	}
	if claim == nil || claim.Status == nil || claim.Status.Phase == moorv1alpha1.ClaimFree || claim.Status.Phase == "" {
		return fmt.Sprintf("waits for snap-host-controller to grant the right to write volume %s: nobody holds it", volume)
	}
	s := claim.Status
	switch {
	case s.Phase == moorv1alpha1.ClaimFencing:
		return fmt.Sprintf("volume %s is being fenced from DPU %s (epoch %d): not shown until that ends", volume, s.Holder, s.Epoch)
	case s.Phase != moorv1alpha1.ClaimGranted:
		return fmt.Sprintf("WriterClaim %s is in phase %q, which this version does not know: not shown", volume, s.Phase)
	case s.Holder != node || s.Attachment != attachment.Name:
		return fmt.Sprintf("volume %s has a single writer, and DPU %s holds it (attachment %s, epoch %d): not shown here", volume, s.Holder, s.Attachment, s.Epoch)
	case attachment.Spec.Epoch == 0 || s.Epoch == 0:
		return fmt.Sprintf("the right to write volume %s is granted to this DPU: waits for snap-host-controller to write the epoch", volume)
	case s.Epoch != attachment.Spec.Epoch:
		return fmt.Sprintf("the right to write volume %s is granted under epoch %d, this attachment is of epoch %d: not shown", volume, s.Epoch, attachment.Spec.Epoch)
	case s.Epoch <= attachment.Status.DPU.RetiredEpoch:
		return fmt.Sprintf("epoch %d of volume %s is over on DPU %s, which has retired epoch %d: not shown before a new grant", s.Epoch, volume, node, attachment.Status.DPU.RetiredEpoch)
	}
	return ""
}

// volumeName is the name of the attachment's Volume, "" if it names none.
func volumeName(attachment *storagev1alpha1.VolumeAttachment) string {
	if ref := attachment.Spec.Source.VolumeRef; ref != nil {
		return ref.Name
	}
	return ""
}
