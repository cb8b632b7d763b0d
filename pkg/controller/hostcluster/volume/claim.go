package volume

import (
	"cmp"
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/writer"
)

// claimAgain is when a claim is looked at again that is held though its volume is gone.
const claimAgain = 10 * time.Second

// clearUp removes the claim of a Volume that went after its DPUVolume, as a person deletes
// one that a restore has brought back. It says when to look again at one that is held; 0:
// there is none.
func (r *Reconciler) clearUp(ctx context.Context, volume string) (time.Duration, error) {
	found, err := kube.Find(ctx, r.Clusters.DPU.Client, r.Clusters.Target(volume), &moorv1alpha1.WriterClaim{})
	if err != nil || !found {
		return 0, err
	}
	held, err := r.removeClaim(ctx, volume)
	if err != nil || held == "" {
		return 0, err
	}
	ctrl.LoggerFrom(ctx).Info("the claim of a volume that is gone is held", "reason", held)
	return claimAgain, nil
}

// removeClaim removes the WriterClaim of a volume that is gone, and with it the epochs that
// were. One that is held stays: it says why. One of another Volume, that has the name since,
// is not touched.
func (r *Reconciler) removeClaim(ctx context.Context, volume string) (held string, err error) {
	key := r.Clusters.Target(volume)
	claim, owner := &moorv1alpha1.WriterClaim{}, &storagev1alpha1.Volume{}
	found, err := kube.Find(ctx, r.Clusters.DPU.Live, key, claim)
	if err != nil || !found {
		return "", err
	}
	found, err = kube.Find(ctx, r.Clusters.DPU.Live, key, owner)
	if err != nil || found && slices.ContainsFunc(claim.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == owner.UID }) {
		return "", err
	}
	if claim, held, err = r.vouched(ctx, claim); err != nil || held != "" {
		return held, err
	}
	if err := kube.RemoveFinalizers(ctx, r.Clusters.DPU.Client, claim, storagev1alpha1.FinalizerEpochs); err != nil {
		return "", err
	}
	return "", kube.Delete(ctx, r.Clusters.DPU.Client, claim)
}

// vouched is the claim after what an operator has vouched for, and for whom it is held
// still; "" if for none. A DPU that has the attachment can answer itself.
func (r *Reconciler) vouched(ctx context.Context, claim *moorv1alpha1.WriterClaim) (*moorv1alpha1.WriterClaim, string, error) {
	if !writer.Held(claim) {
		return claim, "", nil
	}
	a := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, r.Clusters.DPU.Live, r.Clusters.Target(writer.HeldAttachment(claim)), a)
	if err != nil {
		return nil, "", err
	}
	if found {
		_, refused := writer.FreeByVouch(claim, r.clock().Now())
		return claim, cmp.Or(refused, writer.Orphaned(claim)), nil
	}
	freed, refused, err := r.Clusters.FreeByVouch(ctx, claim, r.clock().Now())
	switch {
	case err != nil:
		return nil, "", err
	case freed == nil:
		return claim, cmp.Or(refused, writer.Orphaned(claim)), nil
	case writer.Held(freed):
		return freed, writer.Orphaned(freed), nil
	}
	return freed, "", nil
}
