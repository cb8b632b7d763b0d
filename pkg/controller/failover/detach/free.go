package detach

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/writer"
)

// Free writes the claim with the resourceVersion that was read: if another changed
// it in between, it fails with a conflict, and everything is looked at again. It
// returns the claim as written.
func Free(ctx context.Context, c client.Client, claim *moorv1alpha1.WriterClaim, receipt moorv1alpha1.Receipt, now time.Time) (*moorv1alpha1.WriterClaim, error) {
	freed, err := writer.Free(claim, receipt, now)
	if err == nil {
		err = c.Status().Update(ctx, freed)
	}
	if err != nil {
		return nil, fmt.Errorf("free the right to write volume %s, held by DPU %s under epoch %d: %w", claim.Spec.VolumeName, receipt.Holder, receipt.Epoch, err)
	}
	return freed, nil
}

// Message of the event that an epoch is over.
func Message(r moorv1alpha1.Receipt) string {
	return fmt.Sprintf("epoch %d of DPU %s is over, receipt %s: %s", r.Epoch, r.Holder, r.Kind, r.Message)
}

// Going passes what is being deleted, or is gone.
var Going = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	UpdateFunc:  func(e event.UpdateEvent) bool { return !e.ObjectNew.GetDeletionTimestamp().IsZero() },
	GenericFunc: func(event.GenericEvent) bool { return false },
}
