package cluster

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// admit refuses what an API server refuses: a new finalizer on an object that goes, and
// what the rules of the CRDs forbid about epochs.
func admit(k Key, now, next client.Object) error {
	if !now.GetDeletionTimestamp().IsZero() {
		for _, f := range next.GetFinalizers() {
			if !slices.Contains(now.GetFinalizers(), f) {
				return invalid(k, "metadata.finalizers", f, "no new finalizers can be added if the object is being deleted")
			}
		}
	}
	switch before := now.(type) {
	case *moorv1alpha1.WriterClaim:
		return admitClaim(k, before.Status, next.(*moorv1alpha1.WriterClaim).Status)
	case *storagev1alpha1.DPUVolume:
		return admitMark(k, before.Status.LastGrant, next.(*storagev1alpha1.DPUVolume).Status.LastGrant)
	case *storagev1alpha1.VolumeAttachment:
		return admitAttachment(k, before, next.(*storagev1alpha1.VolumeAttachment))
	}
	return nil
}

func admitClaim(k Key, before, after *moorv1alpha1.WriterClaimStatus) error {
	switch {
	case before == nil:
		return nil
	case after == nil:
		return invalid(k, "status", nil, "status never goes away: it holds the epochs that were")
	case after.Epoch < before.Epoch:
		return invalid(k, "status.epoch", after.Epoch, "epoch never goes back")
	case after.LostEpoch < before.LostEpoch:
		return invalid(k, "status.lostEpoch", after.LostEpoch, "lostEpoch never goes back")
	case after.Phase == moorv1alpha1.ClaimGranted && before.Phase != moorv1alpha1.ClaimFree && before.Phase != "" &&
		(before.Phase != moorv1alpha1.ClaimGranted || after.Holder != before.Holder || after.Epoch != before.Epoch):
		return invalid(k, "status.phase", after.Phase, "the right to write is granted once it is Free: one that is held ends first")
	}
	return nil
}

func admitMark(k Key, before, after *storagev1alpha1.LastGrant) error {
	switch {
	case before == nil:
		return nil
	case after == nil:
		return invalid(k, "status.lastGrant", nil, "status.lastGrant never goes away: it holds the epoch that was")
	case after.Epoch < before.Epoch:
		return invalid(k, "status.lastGrant.epoch", after.Epoch, "epoch never goes back")
	case after.Epoch == before.Epoch && (after.DPU != before.DPU || after.Attachment != before.Attachment || after.AttachmentUID != before.AttachmentUID):
		return invalid(k, "status.lastGrant", after, "an epoch is granted once: its DPU and attachment do not change")
	case after.Epoch == before.Epoch && before.Over && !after.Over:
		return invalid(k, "status.lastGrant.over", after.Over, "an epoch that is over stays so")
	}
	return nil
}

func admitAttachment(k Key, before, after *storagev1alpha1.VolumeAttachment) error {
	switch {
	case before.Spec.NodeName != "" && after.Spec.NodeName != before.Spec.NodeName:
		return invalid(k, "spec.nodeName", after.Spec.NodeName, "nodeName is immutable once it is set")
	case after.Spec.Epoch < before.Spec.Epoch:
		return invalid(k, "spec.epoch", after.Spec.Epoch, "epoch never goes back")
	case after.Status.DPU.RetiredEpoch < before.Status.DPU.RetiredEpoch:
		return invalid(k, "status.dpu.retiredEpoch", after.Status.DPU.RetiredEpoch, "retiredEpoch never goes back")
	case after.Status.DPU.ClearedEpoch < before.Status.DPU.ClearedEpoch:
		return invalid(k, "status.dpu.clearedEpoch", after.Status.DPU.ClearedEpoch, "clearedEpoch never goes back")
	}
	return nil
}

func invalid(k Key, path string, value any, message string) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: k.Kind}, k.Name, field.ErrorList{field.Invalid(field.NewPath(path), value, message)})
}
