package attacher

import (
	"context"
	"encoding/json"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// wholeStatus is a status of which every field is written, null where empty:
// "attached" is required, so a patch of what differs alone would be refused
// while it is still absent.
type wholeStatus struct {
	Attached           bool                   `json:"attached"`
	AttachmentMetadata map[string]string      `json:"attachmentMetadata"`
	AttachError        *storagev1.VolumeError `json:"attachError"`
	DetachError        *storagev1.VolumeError `json:"detachError"`
}

// writeStatus applies change and writes the status if that made a difference,
// and reports whether it did.
func (r *Reconciler) writeStatus(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment, change func(*storagev1.VolumeAttachmentStatus)) (bool, error) {
	want := sv.Status.DeepCopy()
	change(want)
	if equality.Semantic.DeepEqual(want, &sv.Status) {
		return false, nil
	}
	patch, err := json.Marshal(map[string]wholeStatus{"status": {
		Attached: want.Attached, AttachmentMetadata: want.AttachmentMetadata, AttachError: want.AttachError, DetachError: want.DetachError,
	}})
	if err != nil {
		return false, fmt.Errorf("encode the status of SVVolumeAttachment %s: %w", sv.Name, err)
	}
	if err := r.DPU.Client.Status().Patch(ctx, sv, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return false, fmt.Errorf("patch the status of SVVolumeAttachment %s: %w", sv.Name, err)
	}
	return true, nil
}
