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

// answer is what is written of the driver's. It is for the object that was read alone: by the
// name of one that is gone another may have been made, of which the driver has said nothing.
type answer struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Status wholeStatus `json:"status"`
}

// writeStatus applies change and writes the status if that made a difference,
// and reports whether it did. It fails with a conflict if the object has changed since it was
// read.
func (r *Reconciler) writeStatus(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment, change func(*storagev1.VolumeAttachmentStatus)) (bool, error) {
	want := sv.Status.DeepCopy()
	change(want)
	if equality.Semantic.DeepEqual(want, &sv.Status) {
		return false, nil
	}
	out := answer{Status: wholeStatus{Attached: want.Attached, AttachmentMetadata: want.AttachmentMetadata, AttachError: want.AttachError, DetachError: want.DetachError}}
	out.Metadata.ResourceVersion = sv.ResourceVersion
	patch, err := json.Marshal(out)
	if err != nil {
		return false, fmt.Errorf("encode the status of SVVolumeAttachment %s: %w", sv.Name, err)
	}
	if err := r.DPU.Client.Status().Patch(ctx, sv, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return false, fmt.Errorf("patch the status of SVVolumeAttachment %s: %w", sv.Name, err)
	}
	return true, nil
}
