//go:build api

package nodepolicy

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// TestAttachersWord: an attacher says that it revoked, of the attachment that ends, or that
// it fenced, below the epoch that was granted or is being taken, and nothing in the name
// of the DPU or of snap-controller.
func TestAttachersWord(t *testing.T) {
	openDPUs(t)
	c := as(t, clusters.DPUConfig, clusters.DPU, tokenOf(t, clusters.DPUConfig, "snap-external-attacher", ""))
	write := func(change func(*storagev1alpha1.VolumeAttachment)) error {
		return changed(t.Context(), c, "a", "status", change)
	}
	retires := func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.RetiredEpoch++ }
	revokes := func(a *storagev1alpha1.VolumeAttachment) {
		a.Status.Revocation = &storagev1alpha1.StorageRevocation{AttachmentUID: a.UID, NodeID: "a", Time: metav1.Now()}
	}
	fences := func(epoch int64) func(*storagev1alpha1.VolumeAttachment) {
		return func(a *storagev1alpha1.VolumeAttachment) {
			a.Status.Fence = &storagev1alpha1.StorageFence{AttachmentUID: a.UID, Epoch: epoch, Time: metav1.Now()}
		}
	}
	const only, ends, asked = "and nothing else of them", "for the attachment that ends", "below its epoch or the one that it asks for"
	must(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return apierrors.IsForbidden(write(retires)), nil
	}))
	refused(t, write(retires), only)
	refused(t, write(func(a *storagev1alpha1.VolumeAttachment) { a.Status.StorageDetaching = true }), only)
	refused(t, write(revokes), ends)
	refused(t, changed(t.Context(), c, "a", "", func(a *storagev1alpha1.VolumeAttachment) { a.Finalizers = nil; a.Spec.Epoch = 7 }), "cannot patch resource")

	refused(t, write(fences(4)), asked)
	must(t, changed(t.Context(), clusters.DPU, "a", "", func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch = 4 }))
	refused(t, write(fences(5)), asked)
	refused(t, write(func(a *storagev1alpha1.VolumeAttachment) { fences(4)(a); a.Status.Fence.AttachmentUID = "another" }), asked)
	refused(t, write(fences(4)), "")
	must(t, changed(t.Context(), clusters.DPU, "a", "", func(a *storagev1alpha1.VolumeAttachment) { a.Spec.FenceEpoch = 5 }))
	refused(t, write(fences(6)), asked)
	refused(t, write(fences(5)), "")
	must(t, changed(t.Context(), clusters.DPU, "a", "", func(a *storagev1alpha1.VolumeAttachment) {
		a.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim}
	}))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := changed(ctx, clusters.DPU, "a", "", func(a *storagev1alpha1.VolumeAttachment) { a.Finalizers = nil }); err != nil {
			t.Error(err)
		}
	})
	must(t, clusters.DPU.Delete(t.Context(), attachmentOf("a")))
	refused(t, write(revokes), ends)
	must(t, changed(t.Context(), clusters.DPU, "a", "status", func(a *storagev1alpha1.VolumeAttachment) { a.Status.StorageDetaching = true }))
	refused(t, write(func(a *storagev1alpha1.VolumeAttachment) { revokes(a); a.Status.Revocation.AttachmentUID = "another" }), ends)
	refused(t, write(revokes), "")
}
