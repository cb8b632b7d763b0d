package detach

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/writer"
)

// acceptSurrender frees the claim of an attachment that stands, if its DPU has retired the
// epoch under which it is granted. As for one that goes, the claim is read first.
func (r *Reconciler) acceptSurrender(ctx context.Context, attachment *storagev1alpha1.VolumeAttachment) error {
	if claim, err := writerClaim(ctx, r.DPU.Client, attachment); err != nil || writer.Surrendered(attachment, claim) == nil {
		return err
	}
	claim, err := writerClaim(ctx, r.DPU.Live, attachment)
	if err != nil {
		return err
	}
	found, err := kube.Find(ctx, r.DPU.Live, client.ObjectKeyFromObject(attachment), attachment)
	if err != nil || !found {
		return err
	}
	receipt := writer.Surrendered(attachment, claim)
	if receipt == nil {
		return nil
	}
	_, err = Free(ctx, r.DPU.Client, claim, *receipt, r.Clock.Now())
	return err
}
