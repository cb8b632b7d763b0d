package volume

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/writer"
)

// idleAfter is how long a volume is attached nowhere before its last grant is marked as
// over: one that moves is granted anew at once, which says the same without another write.
const idleAfter = time.Minute

// endMark marks the last grant as over, of a volume that has been attached nowhere for a
// while, if its claim says so: should the claim be lost later, no DPU has to be asked. It
// says when to look again; 0: when something changes. That the volume is idle is
// remembered in memory alone: after a restart it is waited for anew.
func (r *Reconciler) endMark(ctx context.Context, volume *storagev1alpha1.DPUVolume) (time.Duration, error) {
	last := volume.Status.LastGrant
	if last == nil || last.Over {
		return 0, nil
	}
	var attachments storagev1alpha1.DPUVolumeAttachmentList
	err := r.Clusters.Host.Client.List(ctx, &attachments, client.InNamespace(volume.Namespace), client.MatchingFields{index.DPUVolumeAttachmentByVolume: volume.Name})
	if err != nil {
		return 0, fmt.Errorf("list the attachments of volume %s: %w", volume.Name, err)
	}
	if len(attachments.Items) > 0 {
		r.idle.Forget(volume.UID)
		return 0, nil
	}
	now := r.clock().Now()
	since, known := r.idle.Get(volume.UID, now)
	if known <= 0 {
		since = now
		r.idle.Note(volume.UID, since, now, now.Add(2*idleAfter))
	}
	if left := idleAfter - now.Sub(since); left > 0 {
		return left, nil
	}
	claim := &moorv1alpha1.WriterClaim{}
	if found, err := kube.Find(ctx, r.Clusters.DPU.Live, r.Clusters.Target(volume.Name), claim); err != nil || !found {
		return 0, err
	}
	ended := writer.EndMark(last, claim)
	if ended == nil {
		return 0, nil
	}
	// A grant since the claim was read has changed the mark, and the volume with it.
	if _, err := kube.PatchStatusExact(ctx, r.Clusters.Host.Client, volume, func(v *storagev1alpha1.DPUVolume) { v.Status.LastGrant = ended }); err != nil {
		return 0, fmt.Errorf("mark epoch %d of volume %s as over: %w", ended.Epoch, volume.Name, err)
	}
	return 0, nil
}

func (r *Reconciler) clock() clock.PassiveClock {
	if r.Clock == nil {
		return clock.RealClock{}
	}
	return r.Clock
}
