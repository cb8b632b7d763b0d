package hostcluster

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/writer"
)

// TakeBack ends a VolumeAttachment whose DPUVolumeAttachment was taken away by force. No user
// gives it back, and failover, which looks at DPUVolumeAttachments, does not see it, so that
// an attachment which waits for the volume would wait for ever. It asks for its deletion: the DPU
// withdraws the volume and gives the receipt. If the DPU is silent, an operator's word ends the
// right to write. It returns what is waited for; "" if the DPUVolumeAttachment is there, which only the
// API server itself can deny. One that no DPUVolumeAttachment asked for is left alone.
func (c Clusters) TakeBack(ctx context.Context, a *storagev1alpha1.VolumeAttachment, silent bool, now time.Time) (waits string, err error) {
	owner := &storagev1alpha1.DPUVolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: a.Name}}
	if a.Annotations[storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment] != OwnerValue(owner) {
		return "", nil
	}
	for _, from := range []client.Reader{c.Host.Client, c.Host.Live} {
		found, err := kube.Find(ctx, from, client.ObjectKeyFromObject(owner), owner)
		if err != nil || found {
			return "", err
		}
	}
	if err := kube.Delete(ctx, c.DPU.Client, a); err != nil {
		return "", err
	}
	if !silent {
		return writer.Abandoned(a), nil
	}
	return c.endAbandoned(ctx, a, now)
}

// endAbandoned ends the right to write of a silent DPU by an operator's word, and returns what
// is waited for. One that has no such right has nothing to end.
func (c Clusters) endAbandoned(ctx context.Context, a *storagev1alpha1.VolumeAttachment, now time.Time) (string, error) {
	claim := &moorv1alpha1.WriterClaim{}
	found, err := kube.Find(ctx, c.DPU.Live, c.Target(a.VolumeName()), claim)
	if err != nil || !found || writer.IsLost(claim) || !writer.Holds(claim, writer.HolderOf(a)) {
		return writer.Abandoned(a), err
	}
	freed, refused, err := c.FreeByVouch(ctx, claim, now)
	if err != nil || freed != nil {
		return Vouched(claim), err
	}
	return writer.AbandonedBySilent(a, claim, refused), nil
}
