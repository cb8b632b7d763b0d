package attachment

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
	"github.com/moor-storage/moor/pkg/writer"
)

// ensureMirror makes the VolumeAttachment. For the primary of a single-writer
// volume whose claim another holds it makes none, so that nothing begins in the
// DPU cluster that must not be finished. A replica needs no claim: without an
// epoch its DPU shows nothing.
func (r *Reconciler) ensureMirror(ctx context.Context, p *pass) error {
	if p.mirror == nil {
		if err := r.mayMake(ctx, p); err != nil {
			return err
		}
	}
	if p.mirror == nil {
		if err := r.stillAsked(ctx, p); err != nil {
			return err
		}
		p.mirror = mirrorOf(p, r.Clusters)
		if _, err := kube.CreateLive(ctx, r.Clusters.DPU.Client, r.Clusters.DPU.Live, p.mirror); err != nil {
			return err
		}
		now := r.clock().Now()
		r.made.Note(p.attachment.UID, struct{}{}, now, now.Add(kube.CacheLag))
	}
	switch {
	case !hostcluster.OwnedBy(p.mirror, p.attachment):
		return r.meanwhile(ctx, p, r.succeed(ctx, p))
	case !p.mirror.DeletionTimestamp.IsZero():
		p.going = true
		return r.meanwhile(ctx, p, kube.WaitFor("VolumeAttachment %s in the DPU cluster is being deleted", p.mirror.Name))
	case p.mirror.Spec.NodeName != p.dpu:
		return kube.WaitFor("it was made for DPU %s, but node %s now has DPU %s: delete the attachment to move it",
			p.mirror.Spec.NodeName, p.attachment.Spec.DPUNodeName, p.dpu)
	}
	p.sound = true
	return nil
}

// meanwhile holds the claim against what others know while the end of a VolumeAttachment is
// waited for: after a restore that may wait for what is started only when each claim knows
// what the host cluster does.
func (r *Reconciler) meanwhile(ctx context.Context, p *pass, wait error) error {
	if p.single() {
		if _, err := r.claimOf(ctx, p); err != nil {
			return err
		}
	}
	return wait
}

// mayMake waits until the VolumeAttachment may be made. For one that holds the claim and
// is gone none is made: it would be taken for it. One that only the cache lacks is found.
// For a replica too there is a claim by then which has its record, or says that it has lost
// it: the storage is opened for what is made, also to a DPU from which the volume was taken.
func (r *Reconciler) mayMake(ctx context.Context, p *pass) error {
	if err := r.mayAsk(ctx, p); err != nil || !p.single() {
		return err
	}
	if p.replica() {
		// One that was promoted early holds the claim as a primary does.
		claim, err := r.claimOf(ctx, p)
		if err != nil && writer.Asks(claim, p.holder()) {
			return nil
		}
		if err != nil || writer.HolderFor(claim, p.attachment.Name).DPU == "" {
			return err
		}
	}
	var err error
	if p.claim, err = r.writerClaim(ctx, p.volume); err != nil {
		return err
	}
	if p.claim, err = r.remember(ctx, p, p.claim); err != nil {
		if writer.Asks(p.claim, p.holder()) {
			return nil
		}
		return err
	}
	if writer.HolderFor(p.claim, p.attachment.Name).DPU != "" {
		live := &storagev1alpha1.VolumeAttachment{}
		found, err := kube.Find(ctx, r.Clusters.DPU.Live, r.Clusters.Target(p.attachment.Name), live)
		if err != nil {
			return err
		}
		if found {
			p.mirror = live
			return nil
		}
	} else if p.replica() {
		return nil
	}
	return r.refused(ctx, p.claim, writer.Judge(p.claim, p.holder()))
}

// refused is the wait for another who holds the claim; nil if none does. It says so if what
// the claim is held for is gone, or is wanted by no DPUVolumeAttachment, since no wait for
// a user ends that.
func (r *Reconciler) refused(ctx context.Context, claim *moorv1alpha1.WriterClaim, v writer.Verdict) error {
	if v.Refused == "" {
		return nil
	}
	if !writer.Held(claim) || writer.IsLost(claim) {
		return kube.WaitFor("%s", v.Refused)
	}
	holder, err := r.holderOf(ctx, claim)
	if err != nil {
		return err
	}
	if holder == nil {
		return r.endByVouch(ctx, claim)
	}
	silent := r.Silent != nil && r.Silent(holder.Spec.NodeName)
	waits, err := r.Clusters.TakeBack(ctx, holder, silent, r.clock().Now())
	if err != nil {
		return err
	}
	if waits != "" {
		return kube.WaitRetry(recoverAgain, "%s", waits)
	}
	return kube.WaitFor("%s", v.Refused)
}

// holderOf is the VolumeAttachment for which the claim is held; nil if it is gone, which only
// the API server itself can say.
func (r *Reconciler) holderOf(ctx context.Context, claim *moorv1alpha1.WriterClaim) (*storagev1alpha1.VolumeAttachment, error) {
	holder := &storagev1alpha1.VolumeAttachment{}
	for _, from := range []client.Reader{r.Clusters.DPU.Client, r.Clusters.DPU.Live} {
		found, err := kube.Find(ctx, from, r.Clusters.Target(claim.Status.Attachment), holder)
		if err != nil {
			return nil, err
		}
		if found && writer.Holds(claim, writer.HolderOf(holder)) {
			return holder, nil
		}
	}
	return nil, nil
}

// warm tells the DPU how ready to keep a replica.
func (r *Reconciler) warm(ctx context.Context, p *pass) error {
	if !p.replica() || p.begun() || p.mirror.Spec.Warmth == p.attachment.Spec.Warmth {
		return nil
	}
	_, err := kube.Patch(ctx, r.Clusters.DPU.Client, p.mirror, func(m *storagev1alpha1.VolumeAttachment) { m.Spec.Warmth = p.attachment.Spec.Warmth })
	return err
}

// grant gives the DPU of a primary, or of a replica that is promoted early, the
// right to write, if the volume has a single writer and its claim is free, and
// writes the epoch where the DPU reads it. Until then a replica that was promoted
// stays one in the DPU cluster: the DPU learns of its role and of its epoch at
// once, never of one alone.
func (r *Reconciler) grant(ctx context.Context, p *pass) error {
	if p.replica() && !p.early {
		return nil
	}
	if !p.begun() {
		if err := r.mayAsk(ctx, p); err != nil {
			return err
		}
	}
	if !p.single() {
		return r.promote(ctx, p, promotion{})
	}
	claim, err := r.claimOf(ctx, p)
	if err != nil {
		return err
	}
	verdict := writer.Judge(claim, p.holder())
	switch {
	case verdict.Refused != "":
		if p.replica() { // its host has not asked for it, so it does not wait
			return nil
		}
		p.fenced = r.fencedFor(p, claim)
		return r.refused(ctx, claim, verdict)
	case verdict.Grant:
		if granted, err := r.grantClaim(ctx, p, claim); err != nil || !granted {
			return err
		}
	case p.mirror.Spec.Epoch != verdict.Epoch:
		if err := r.refresh(ctx, p); err != nil {
			return err
		}
	}
	if err := r.record(ctx, p, claim, verdict.Epoch); err != nil {
		return err
	}
	return r.promote(ctx, p, promotion{epoch: verdict.Epoch, last: writer.LastReceipt(claim)})
}

// fencedGrace is how long it is not told that the right to write is being taken from an
// attachment: its VolumeAttachment is deleted next, of which the status tells at once. API
// servers that a rack's fences overload take seconds for that.
const fencedGrace = 10 * time.Second

// fencedFor is how much of that is left; 0 if the right to write is another's.
func (r *Reconciler) fencedFor(p *pass, claim *moorv1alpha1.WriterClaim) time.Duration {
	if !writer.InFencing(claim, p.holder()) {
		return 0
	}
	now := r.clock().Now()
	since, known := r.fenced.Get(p.attachment.UID, now)
	if known <= 0 {
		since = now
	}
	r.fenced.Note(p.attachment.UID, since, now, now.Add(2*fencedGrace))
	return max(0, fencedGrace-now.Sub(since))
}

// grantClaim grants a claim that is free, unless what asks for it no longer does, or the host
// cluster remembers a later grant than the caches have shown.
func (r *Reconciler) grantClaim(ctx context.Context, p *pass, claim *moorv1alpha1.WriterClaim) (granted bool, err error) {
	if err := r.mayAsk(ctx, p); err != nil {
		return false, err
	}
	if err := r.confirm(ctx, p); err != nil || p.replica() && !p.early {
		return false, err
	}
	now, err := r.remember(ctx, p, claim)
	if err != nil {
		return false, err
	}
	if now.ResourceVersion != claim.ResourceVersion {
		if err := r.refused(ctx, now, writer.Judge(now, p.holder())); err != nil {
			return false, err
		}
		return false, kube.WaitRetry(recoverAgain, "WriterClaim %s was behind what the host cluster remembers of its grants, and is read again", now.Name)
	}
	after, err := writer.Grant(claim, p.holder())
	if err == nil {
		// Update carries the resourceVersion that was read: of two who
		// try at once, one fails.
		err = r.Clusters.DPU.Client.Status().Update(ctx, after)
	}
	if err != nil {
		return false, fmt.Errorf("grant the right to write volume %s to DPU %s: %w", claim.Name, p.dpu, err)
	}
	return true, nil
}

// bind binds a claim to the VolumeAttachment that it was granted to before claims said
// which object that was.
func (r *Reconciler) bind(ctx context.Context, p *pass, claim *moorv1alpha1.WriterClaim) error {
	if !writer.Unbound(claim, p.mirror) {
		return nil
	}
	if stays, err := r.stays(ctx, p); err != nil || !stays {
		return err
	}
	after, err := writer.Bind(claim, p.mirror)
	if err == nil {
		err = r.Clusters.DPU.Client.Status().Update(ctx, after)
	}
	if err != nil {
		return fmt.Errorf("bind the right to write volume %s to its VolumeAttachment: %w", claim.Name, err)
	}
	return nil
}

// refresh reads the VolumeAttachment from the API server itself, where the
// cache shows one without the epoch that was granted: mostly only the cache
// lacks it, and the write would be for nothing.
func (r *Reconciler) refresh(ctx context.Context, p *pass) error {
	live := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, r.Clusters.DPU.Live, r.Clusters.Target(p.mirror.Name), live)
	if err == nil && found && live.UID == p.mirror.UID {
		p.mirror = live
	}
	return err
}

// confirm asks the API servers themselves, last before a grant, whether the
// VolumeAttachment is there to stay, of a replica, whether its pod is, and what the host
// cluster remembers of the last grant: no cache of it is young enough after a restore.
func (r *Reconciler) confirm(ctx context.Context, p *pass) error {
	var all errgroup.Group
	stays := false
	all.Go(func() (err error) {
		stays, err = r.stays(ctx, p)
		return err
	})
	all.Go(func() error { return r.readVolume(ctx, p) })
	if p.replica() {
		all.Go(func() (err error) {
			p.early, err = r.Users.lasting(ctx, p.attachment.Spec.DPUNodeName, p.attachment.Spec.DPUVolumeName)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	if !stays {
		return kube.WaitFor("VolumeAttachment %s in the DPU cluster is being deleted", p.mirror.Name)
	}
	return nil
}

// stays asks the API server itself whether the VolumeAttachment is there to
// stay. Only its deletion takes the right to write back, so one that is gone
// already would hold it for ever. The claim was read before: a fence that freed
// it since makes the grant fail.
func (r *Reconciler) stays(ctx context.Context, p *pass) (bool, error) {
	live := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, r.Clusters.DPU.Live, r.Clusters.Target(p.mirror.Name), live)
	return found && live.UID == p.mirror.UID && live.DeletionTimestamp.IsZero(), err
}

// claimOf is the volume's claim, held against what others know.
func (r *Reconciler) claimOf(ctx context.Context, p *pass) (*moorv1alpha1.WriterClaim, error) {
	claim, err := r.cachedOrLive(ctx, p)
	if err != nil {
		return nil, err
	}
	return r.remember(ctx, p, claim)
}

// cachedOrLive is the volume's claim, from the cache where an old one does no harm.
// One that is free there is granted with the resourceVersion that was read, which
// fails if it is not free by now; under one that is settled, or is being fenced, nothing
// is granted or promoted. All else is the API server's, read once in a pass.
func (r *Reconciler) cachedOrLive(ctx context.Context, p *pass) (*moorv1alpha1.WriterClaim, error) {
	if p.claim != nil {
		return p.claim, nil
	}
	claim := &moorv1alpha1.WriterClaim{}
	found, err := kube.Find(ctx, r.Clusters.DPU.Client, r.Clusters.Target(p.volume.Name), claim)
	kept := controllerutil.ContainsFinalizer(claim, storagev1alpha1.FinalizerEpochs)
	if err != nil || found && kept && (claim.Status != nil && (!writer.Held(claim) || claim.Status.Phase == moorv1alpha1.ClaimFencing) || p.settled(claim)) {
		return claim, err
	}
	return r.writerClaim(ctx, p.volume)
}

// settled reports whether the claim is granted to this very holder, and its DPU has
// been told so: the mirror is a primary with the epoch of the claim.
func (p *pass) settled(claim *moorv1alpha1.WriterClaim) bool {
	return p.begun() && writer.Settled(claim, p.holder(), p.mirror.Spec.Epoch) && !writer.Unbound(claim, p.mirror)
}

// mirrorOf is the VolumeAttachment that a DPUVolumeAttachment asks for.
func mirrorOf(p *pass, c hostcluster.Clusters) *storagev1alpha1.VolumeAttachment {
	out := &storagev1alpha1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.attachment.Name, Namespace: c.TargetNamespace,
			Labels:      map[string]string{storagev1alpha1.LabelOwnerUID: string(p.attachment.UID)},
			Annotations: map[string]string{storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment: hostcluster.OwnerValue(p.attachment)},
		},
		Spec: storagev1alpha1.VolumeAttachmentSpec{
			NodeName: p.dpu,
			Source: storagev1alpha1.VolumeAttachmentSource{VolumeRef: &storagev1alpha1.ObjectRef{
				Kind: "Volume", APIVersion: storagev1alpha1.GroupVersion.String(), Name: p.volume.Name, Namespace: c.TargetNamespace,
			}},
			FunctionTypeConfig: p.attachment.Spec.FunctionTypeConfig,
			Role:               p.attachment.Spec.Role,
			Warmth:             p.attachment.Spec.Warmth,
		},
	}
	if p.single() {
		out.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim}
	}
	return out
}
