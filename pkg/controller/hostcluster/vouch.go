package hostcluster

import (
	"context"
	"fmt"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/writer"
)

// FreeByVouch ends the right to write of a holder that cannot say so itself, by an operator's
// word. freed is nil if no word counts, and refused says why; "" if there is none. The claim was
// read from the API server itself: one that has changed makes the write fail.
func (c Clusters) FreeByVouch(ctx context.Context, claim *moorv1alpha1.WriterClaim, now time.Time) (freed *moorv1alpha1.WriterClaim, refused string, err error) {
	if freed, refused = writer.FreeByVouch(claim, now); freed == nil {
		return nil, refused, nil
	}
	if err := c.DPU.Client.Status().Update(ctx, freed); err != nil {
		return nil, "", fmt.Errorf("free volume %s by an operator's word: %w", claim.Name, err)
	}
	return freed, "", nil
}

// Vouched says that an operator's word has ended the right to write of a DPU.
func Vouched(claim *moorv1alpha1.WriterClaim) string {
	return fmt.Sprintf("an operator has vouched that DPU %s cannot write volume %s any more", claim.Status.Holder, claim.Name)
}
