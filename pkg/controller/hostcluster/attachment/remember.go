package attachment

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
	"github.com/moor-storage/moor/pkg/writer"
)

// recoverAgain is when a claim that was lost is looked at again: what its proofs stand on
// wakes the attachments that they are of, and not those that wait.
const recoverAgain = 5 * time.Second

// record has both clusters remember which object the right to write is granted to. The host
// cluster does not before the claim says it.
func (r *Reconciler) record(ctx context.Context, p *pass, claim *moorv1alpha1.WriterClaim, epoch int64) error {
	if writer.Nameless(claim) {
		return r.bind(ctx, p, claim)
	}
	return r.mark(ctx, p, epoch)
}

// mark has the host cluster remember the grant, before the DPU can learn of it: the claim
// is in the DPU cluster, whose etcd may be lost or restored. It is written against the volume
// as it was read: what differs from a mark of several grants before is not the mark.
func (r *Reconciler) mark(ctx context.Context, p *pass, epoch int64) error {
	if writer.Marked(p.volume.Status.LastGrant, p.holder(), epoch) {
		return nil
	}
	write := func() error {
		_, err := kube.PatchStatusExact(ctx, r.Clusters.Host.Client, p.volume, func(v *storagev1alpha1.DPUVolume) {
			v.Status.LastGrant = writer.Mark(p.holder(), epoch)
		})
		return err
	}
	err := write()
	if apierrors.IsConflict(err) && r.readVolume(ctx, p) == nil {
		switch last := p.volume.Status.LastGrant; {
		case writer.Marked(last, p.holder(), epoch):
			return nil
		case writer.MarkedEpoch(last, nil) < epoch: // what another wrote is mostly about replicas
			err = write()
		}
	}
	if err != nil {
		return fmt.Errorf("have the host cluster remember that epoch %d of the right to write is of DPU %s: %w", epoch, p.dpu, err)
	}
	if p.volume.Status.LastGrant == nil {
		return kube.WaitFor("DPUVolume %s does not keep the epoch of the last grant: apply crds/host", p.volume.Name)
	}
	return nil
}

// readVolume reads the volume of the pass from the API server itself.
func (r *Reconciler) readVolume(ctx context.Context, p *pass) error {
	live := &storagev1alpha1.DPUVolume{}
	found, err := kube.Find(ctx, r.Clusters.Host.Live, client.ObjectKeyFromObject(p.volume), live)
	switch {
	case err != nil:
		return err
	case !found || live.UID != p.volume.UID:
		return kube.WaitRetry(recoverAgain, "DPUVolume %s is gone, or is another one by now", p.volume.Name)
	}
	p.volume = live
	return nil
}

// remember holds a claim against what others know of epochs that were granted: the
// VolumeAttachments of the volume, and what the host cluster says of its attachments and
// of the last grant. One that knows less was deleted or restored, and grants nothing before
// it is proven of each who may write that it cannot. What the caches show raises the
// suspicion; the API server itself has to confirm it. It returns the claim as it is then,
// also with the error while it waits.
func (r *Reconciler) remember(ctx context.Context, p *pass, claim *moorv1alpha1.WriterClaim) (*moorv1alpha1.WriterClaim, error) {
	if writer.IsLost(claim) {
		return r.recoverClaim(ctx, claim)
	}
	known, err := r.known(ctx, p.volume)
	if err != nil || !writer.Behind(claim, known.epoch(claim)) {
		return claim, err
	}
	if claim, err = r.writerClaim(ctx, p.volume); err != nil {
		return nil, err
	}
	if err := r.confirmKnown(ctx, p.volume, &known); err != nil || !writer.Behind(claim, known.epoch(claim)) || writer.IsLost(claim) {
		return claim, err
	}
	after, err := writer.Lose(claim, known.epoch(claim), known.holders())
	if err != nil {
		return claim, nil // it is being fenced, and grants nothing
	}
	if err := r.Clusters.DPU.Client.Status().Update(ctx, after); err != nil {
		return nil, fmt.Errorf("record that WriterClaim %s had lost epoch %d: %w", claim.Name, known.epoch(claim), err)
	}
	return after, nil
}

// knowledge is what others know of the epochs of a volume.
type knowledge struct {
	mirrors []storagev1alpha1.VolumeAttachment
	// elsewhere are attachments of the host cluster for which there is none.
	elsewhere []moorv1alpha1.LostHolder
	// last is the last grant that the host cluster remembers; nil if there is none.
	last *storagev1alpha1.LastGrant
}

// epoch is the highest that is known beside this claim.
func (k knowledge) epoch(claim *moorv1alpha1.WriterClaim) int64 {
	out := writer.MarkedEpoch(k.last, claim)
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
	return writer.Remembered(append(out, k.elsewhere...), k.mirrors, k.last)
}

// known is what the caches know.
func (r *Reconciler) known(ctx context.Context, volume *storagev1alpha1.DPUVolume) (knowledge, error) {
	var list storagev1alpha1.VolumeAttachmentList
	of := client.MatchingFields{index.VolumeAttachmentByVolume: volume.Name}
	if err := r.Clusters.DPU.Client.List(ctx, &list, client.InNamespace(r.Clusters.TargetNamespace), of); err != nil {
		return knowledge{}, fmt.Errorf("list the VolumeAttachments of volume %s: %w", volume.Name, err)
	}
	out := knowledge{mirrors: list.Items, last: volume.Status.LastGrant}
	for _, a := range r.list(ctx, index.DPUVolumeAttachmentByVolume, volume.Name) {
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

// confirmKnown reads the VolumeAttachments, and the last grant that the host cluster
// remembers, from the API servers themselves. A VolumeAttachment that is gone in the
// meantime has gone in order: its claim was there.
func (r *Reconciler) confirmKnown(ctx context.Context, volume *storagev1alpha1.DPUVolume, k *knowledge) error {
	live := &storagev1alpha1.DPUVolume{}
	found, err := kube.Find(ctx, r.Clusters.Host.Live, client.ObjectKeyFromObject(volume), live)
	if err != nil {
		return err
	}
	if k.last = nil; found && live.UID == volume.UID {
		k.last = live.Status.LastGrant
	}
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
		if found && after == nil {
			after = writer.Adopt(live, a)
		}
		if after == nil {
			answers := found && a.UID == h.AttachmentUID && (r.Silent == nil || !r.Silent(h.DPU))
			after = writer.RecoverByVouch(live, i, r.clock().Now(), answers)
		}
		if after == nil {
			continue
		}
		if err := r.Clusters.DPU.Client.Status().Update(ctx, after); err != nil {
			return nil, fmt.Errorf("record of DPU %s how far it has withdrawn volume %s, of which the claim was lost: %w", h.DPU, live.Name, err)
		}
		return after, nil
	}
	return live, kube.WaitRetry(recoverAgain, "%s", writer.LostMessage(live))
}

// writerClaim reads the volume's claim from the API server itself, and makes it if
// there is none.
func (r *Reconciler) writerClaim(ctx context.Context, volume *storagev1alpha1.DPUVolume) (*moorv1alpha1.WriterClaim, error) {
	key := r.Clusters.Target(volume.Name)
	claim := &moorv1alpha1.WriterClaim{}
	found, err := kube.Find(ctx, r.Clusters.DPU.Live, key, claim)
	if err != nil {
		return nil, err
	}
	if found {
		if claim.DeletionTimestamp.IsZero() { // one of before has no finalizer
			_, err = kube.AddFinalizer(ctx, r.Clusters.DPU.Client, claim, storagev1alpha1.FinalizerEpochs)
		}
		return claim, err
	}
	owner := &storagev1alpha1.Volume{}
	if found, err = kube.Find(ctx, r.Clusters.DPU.Live, key, owner); err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("volume %s does not exist in DPU cluster %s, though it is bound: was it deleted there by hand?", volume.Name, r.Clusters.DPUClusterName)
	}
	if !hostcluster.OwnedBy(owner, volume) {
		return nil, kube.WaitFor("Volume %s in DPU cluster %s was not made for this DPUVolume, or DPF made it and it is not taken over yet: the DPUVolume says what it waits for",
			volume.Name, r.Clusters.DPUClusterName)
	}
	// A cache may lack the mark of the last grant, and the claim would begin below it.
	marked := &storagev1alpha1.DPUVolume{}
	if _, err := kube.Find(ctx, r.Clusters.Host.Live, client.ObjectKeyFromObject(volume), marked); err != nil {
		return nil, err
	}
	claim = &moorv1alpha1.WriterClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: volume.Name, Namespace: r.Clusters.TargetNamespace, Finalizers: []string{storagev1alpha1.FinalizerEpochs},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: storagev1alpha1.GroupVersion.String(), Kind: "Volume", Name: owner.Name, UID: owner.UID,
			}},
		},
		Spec: moorv1alpha1.WriterClaimSpec{VolumeName: volume.Name, AfterEpoch: writer.MarkedEpoch(marked.Status.LastGrant, nil)},
	}
	if _, err := kube.CreateLive(ctx, r.Clusters.DPU.Client, r.Clusters.DPU.Live, claim); err != nil {
		return nil, fmt.Errorf("make the WriterClaim of volume %s: %w", volume.Name, err)
	}
	return claim, nil
}
