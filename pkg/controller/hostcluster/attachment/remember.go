package attachment

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/writer"
)

// recoverAgain is when a claim that was lost is looked at again: what its proofs stand on
// wakes the attachments that they are of, and not those that wait.
const recoverAgain = 5 * time.Second

// remember holds a claim against what others know of epochs that were granted: the
// VolumeAttachments of the volume, and what the host cluster says of its attachments. One
// that knows less was deleted or restored, and grants nothing before it is proven of each
// who may write that it cannot. What the caches show raises the suspicion; the API server
// itself has to confirm it. It returns the claim as it is then.
func (r *Reconciler) remember(ctx context.Context, p *pass, claim *moorv1alpha1.WriterClaim) (*moorv1alpha1.WriterClaim, error) {
	if writer.IsLost(claim) {
		return r.recoverClaim(ctx, claim)
	}
	known, err := r.known(ctx, p.volume.Name)
	if err != nil || !writer.Behind(claim, known.epoch()) {
		return claim, err
	}
	if claim, err = r.writerClaim(ctx, p.volume); err != nil {
		return nil, err
	}
	if err := r.confirmKnown(ctx, &known); err != nil || !writer.Behind(claim, known.epoch()) || writer.IsLost(claim) {
		return claim, err
	}
	after, err := writer.Lose(claim, known.epoch(), known.holders())
	if err != nil {
		return claim, nil // it is being fenced, and grants nothing
	}
	if err := r.Clusters.DPU.Client.Status().Update(ctx, after); err != nil {
		return nil, fmt.Errorf("record that WriterClaim %s had lost epoch %d: %w", claim.Name, known.epoch(), err)
	}
	return after, nil
}

// knowledge is what others know of the epochs of a volume.
type knowledge struct {
	mirrors []storagev1alpha1.VolumeAttachment
	// elsewhere are attachments of the host cluster for which there is none.
	elsewhere []moorv1alpha1.LostHolder
}

// epoch is the highest that is known.
func (k knowledge) epoch() int64 {
	var out int64
	for i := range k.mirrors {
		out = max(out, writer.Seen(&k.mirrors[i]))
	}
	for _, h := range k.elsewhere {
		out = max(out, h.Epoch)
	}
	return out
}

// holders are those who may write.
func (k knowledge) holders() []moorv1alpha1.LostHolder {
	var out []moorv1alpha1.LostHolder
	for i := range k.mirrors {
		if writer.Writable(&k.mirrors[i]) {
			out = append(out, writer.MayWrite(&k.mirrors[i]))
		}
	}
	return append(out, k.elsewhere...)
}

// known is what the caches know.
func (r *Reconciler) known(ctx context.Context, volume string) (knowledge, error) {
	var list storagev1alpha1.VolumeAttachmentList
	of := client.MatchingFields{index.VolumeAttachmentByVolume: volume}
	if err := r.Clusters.DPU.Client.List(ctx, &list, client.InNamespace(r.Clusters.TargetNamespace), of); err != nil {
		return knowledge{}, fmt.Errorf("list the VolumeAttachments of volume %s: %w", volume, err)
	}
	out := knowledge{mirrors: list.Items}
	for _, a := range r.list(ctx, index.DPUVolumeAttachmentByVolume, volume) {
		there := slices.ContainsFunc(list.Items, func(m storagev1alpha1.VolumeAttachment) bool { return m.Name == a.Name })
		if a.Status.Epoch > 0 && !there {
			node := &moorv1alpha1.DPUStorageNode{}
			if _, err := kube.Find(ctx, r.Clusters.Host.Client, client.ObjectKey{Name: a.Spec.DPUNodeName}, node); err != nil {
				return knowledge{}, err
			}
			dpu := node.Spec.DPUName
			if dpu == "" {
				dpu = "of host " + a.Spec.DPUNodeName
			}
			out.elsewhere = append(out.elsewhere, moorv1alpha1.LostHolder{DPU: dpu, Attachment: a.Name, Epoch: a.Status.Epoch})
		}
	}
	return out, nil
}

// confirmKnown reads the VolumeAttachments from the API server itself. One that is gone in
// the meantime has gone in order: its claim was there.
func (r *Reconciler) confirmKnown(ctx context.Context, k *knowledge) error {
	var out []storagev1alpha1.VolumeAttachment
	for i := range k.mirrors {
		live := &storagev1alpha1.VolumeAttachment{}
		found, err := kube.Find(ctx, r.Clusters.DPU.Live, client.ObjectKeyFromObject(&k.mirrors[i]), live)
		if err != nil {
			return err
		}
		if found {
			out = append(out, *live)
		}
	}
	k.mirrors = out
	return nil
}

// recoverClaim takes those off a claim that was lost of which it is proven that they cannot
// write any more. While one is left, it is waited for. The claim was read from the API
// server itself: one that is another by now makes the write fail.
func (r *Reconciler) recoverClaim(ctx context.Context, live *moorv1alpha1.WriterClaim) (*moorv1alpha1.WriterClaim, error) {
	for i, h := range live.Status.Lost {
		a := &storagev1alpha1.VolumeAttachment{}
		found, err := kube.Find(ctx, r.Clusters.DPU.Live, r.Clusters.Target(h.Attachment), a)
		if err != nil {
			return nil, err
		}
		after := writer.Recover(live, a, r.clock().Now())
		if after == nil {
			answers := found && a.UID == h.AttachmentUID && (r.Silent == nil || !r.Silent(h.DPU))
			after = writer.RecoverByVouch(live, i, r.clock().Now(), answers)
		}
		if after == nil {
			continue
		}
		if err := r.Clusters.DPU.Client.Status().Update(ctx, after); err != nil {
			return nil, fmt.Errorf("record that DPU %s has withdrawn volume %s, of which the claim was lost: %w", h.DPU, live.Name, err)
		}
		return after, nil
	}
	return nil, kube.WaitRetry(recoverAgain, "%s", writer.LostMessage(live))
}
