package attachment

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
	"github.com/moor-storage/moor/pkg/writer"
)

// ensureMirror makes the VolumeAttachment. For the primary of a single-writer
// volume whose claim somebody else holds it makes none, so that nothing further
// down begins what must not end. A replica needs no claim: without an epoch its
// DPU shows nothing.
func (r *Reconciler) ensureMirror(ctx context.Context, s *state) error {
	if s.mirror == nil {
		if err := r.mayAsk(ctx, s); err != nil || s.waiting != "" {
			return err
		}
		if !s.replica() && s.single() {
			claim, err := r.claim(ctx, s.volume)
			if err != nil {
				return err
			}
			if verdict := writer.Judge(claim, s.holder()); verdict.Refused != "" {
				s.waiting = verdict.Refused
				return nil
			}
		}
		s.mirror = mirrorOf(s, r.Clusters)
		if _, err := kube.Create(ctx, r.Clusters.DPU.Client, s.mirror); err != nil {
			return err
		}
	}
	switch {
	case !hostcluster.OwnedBy(s.mirror, s.attachment):
		s.waiting = fmt.Sprintf("a VolumeAttachment %s of an earlier attachment of this name is still being removed", s.mirror.Name)
	case !s.mirror.DeletionTimestamp.IsZero():
		s.going = true
		s.waiting = fmt.Sprintf("VolumeAttachment %s in the DPU cluster is being deleted", s.mirror.Name)
	case s.mirror.Spec.NodeName != s.dpu:
		s.waiting = fmt.Sprintf("it was made for DPU %s, but node %s now has DPU %s: delete the attachment to move it",
			s.mirror.Spec.NodeName, s.attachment.Spec.DPUNodeName, s.dpu)
	default:
		s.sound = true
	}
	return nil
}

// warm tells the DPU how ready to keep a replica.
func (r *Reconciler) warm(ctx context.Context, s *state) error {
	if !s.replica() || s.begun() || s.mirror.Spec.Warmth == s.attachment.Spec.Warmth {
		return nil
	}
	_, err := kube.Patch(ctx, r.Clusters.DPU.Client, s.mirror, func(m *storagev1alpha1.VolumeAttachment) { m.Spec.Warmth = s.attachment.Spec.Warmth })
	return err
}

// grant gives the DPU of a primary, or of a replica that goes ahead, the right to
// write, if the volume has a single writer and nobody holds it, and writes the
// epoch where the DPU reads it. Until then a replica that was promoted stays one
// down there: the DPU learns of its role and of its epoch at once, and never has
// one alone.
func (r *Reconciler) grant(ctx context.Context, s *state) error {
	if s.replica() && !s.ahead {
		return nil
	}
	if !s.begun() {
		if err := r.mayAsk(ctx, s); err != nil || s.waiting != "" {
			return err
		}
	}
	if !s.single() {
		return r.promote(ctx, s, promotion{})
	}
	claim, err := r.freeOrLive(ctx, s.volume)
	if err != nil {
		return err
	}
	verdict := writer.Judge(claim, s.holder())
	switch {
	case verdict.Refused != "":
		if !s.replica() { // nothing has asked for a replica, so nothing waits for it
			s.waiting = verdict.Refused
		}
		return nil
	case verdict.Grant:
		if granted, err := r.grantClaim(ctx, s, claim); err != nil || !granted {
			return err
		}
	case s.mirror.Spec.Epoch != verdict.Epoch:
		if err := r.refresh(ctx, s); err != nil {
			return err
		}
	}
	return r.promote(ctx, s, promotion{epoch: verdict.Epoch, last: writer.LastReceipt(claim)})
}

// grantClaim grants a claim that is free, unless what asks for it no longer does.
func (r *Reconciler) grantClaim(ctx context.Context, s *state, claim *moorv1alpha1.WriterClaim) (granted bool, err error) {
	if err := r.mayAsk(ctx, s); err != nil || s.waiting != "" {
		return false, err
	}
	if err := r.confirm(ctx, s); err != nil || s.waiting != "" || s.replica() && !s.ahead {
		return false, err
	}
	after, err := writer.Grant(claim, s.holder())
	if err == nil {
		// Update carries the resourceVersion that was read: of two who
		// try at once, one fails.
		err = r.Clusters.DPU.Client.Status().Update(ctx, after)
	}
	if err != nil {
		return false, fmt.Errorf("grant the right to write volume %s to DPU %s: %w", claim.Name, s.dpu, err)
	}
	return true, nil
}

// promote tells the DPU that the attachment is a primary, and under which
// epoch.
func (r *Reconciler) promote(ctx context.Context, s *state, p promotion) error {
	p.replica, p.warmth = s.mirror.Spec.Role == storagev1alpha1.RoleReplica, see(s).warmth()
	wrote, err := kube.Patch(ctx, r.Clusters.DPU.Client, s.mirror, func(m *storagev1alpha1.VolumeAttachment) {
		if m.Spec.Role == storagev1alpha1.RoleReplica {
			m.Spec.Role = storagev1alpha1.RolePrimary
		}
		m.Spec.Epoch = p.epoch
	})
	if wrote {
		r.tellPromoted(s, p)
	}
	return err
}

// refresh reads the VolumeAttachment from the API server itself, where the
// cache shows one without the epoch that was granted: mostly only the cache
// lacks it, and the write would be for nothing.
func (r *Reconciler) refresh(ctx context.Context, s *state) error {
	live := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, r.Clusters.DPU.Live, r.Clusters.Target(s.mirror.Name), live)
	if err == nil && found && live.UID == s.mirror.UID {
		s.mirror = live
	}
	return err
}

// confirm asks the API servers themselves, last before a grant, whether the
// VolumeAttachment is there to stay and, of a replica, whether its pod is.
func (r *Reconciler) confirm(ctx context.Context, s *state) error {
	var both errgroup.Group
	both.Go(func() error { return r.stillWanted(ctx, s) })
	if s.replica() {
		both.Go(func() (err error) {
			s.ahead, err = r.Users.lasting(ctx, s.attachment.Spec.DPUNodeName, s.attachment.Spec.DPUVolumeName)
			return err
		})
	}
	return both.Wait()
}

// stillWanted asks the API server itself whether the VolumeAttachment is there
// to stay. Only its deletion takes the right to write back, so one that is
// gone already would hold it for ever. The claim was read before: a fence that
// freed it since makes the grant fail.
func (r *Reconciler) stillWanted(ctx context.Context, s *state) error {
	live := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, r.Clusters.DPU.Live, r.Clusters.Target(s.mirror.Name), live)
	if err != nil {
		return err
	}
	if !found || live.UID != s.mirror.UID || !live.DeletionTimestamp.IsZero() {
		s.waiting = fmt.Sprintf("VolumeAttachment %s in the DPU cluster is being deleted", s.mirror.Name)
	}
	return nil
}

// freeOrLive is the volume's claim as the cache has it, if nobody holds it there: it
// is granted with the resourceVersion that was read, so if somebody does by now, that
// fails. Else it is the API server's.
func (r *Reconciler) freeOrLive(ctx context.Context, volume *storagev1alpha1.DPUVolume) (*moorv1alpha1.WriterClaim, error) {
	claim := &moorv1alpha1.WriterClaim{}
	found, err := kube.Find(ctx, r.Clusters.DPU.Client, r.Clusters.Target(volume.Name), claim)
	if err != nil || found && claim.Status != nil && !writer.Held(claim) {
		return claim, err
	}
	return r.claim(ctx, volume)
}

// claim reads the volume's claim from the API server itself, and makes it if
// there is none.
func (r *Reconciler) claim(ctx context.Context, volume *storagev1alpha1.DPUVolume) (*moorv1alpha1.WriterClaim, error) {
	key := r.Clusters.Target(volume.Name)
	claim := &moorv1alpha1.WriterClaim{}
	found, err := kube.Find(ctx, r.Clusters.DPU.Live, key, claim)
	if err != nil || found {
		return claim, err
	}
	owner := &storagev1alpha1.Volume{}
	if found, err = kube.Find(ctx, r.Clusters.DPU.Live, key, owner); err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("volume %s does not exist in DPU cluster %s, though it is bound: was it deleted there by hand?", volume.Name, r.Clusters.DPUClusterName)
	}
	claim = &moorv1alpha1.WriterClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: volume.Name, Namespace: r.Clusters.TargetNamespace,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: storagev1alpha1.GroupVersion.String(), Kind: "Volume", Name: owner.Name, UID: owner.UID,
			}},
		},
		Spec: moorv1alpha1.WriterClaimSpec{VolumeName: volume.Name},
	}
	if err := r.Clusters.DPU.Client.Create(ctx, claim); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("make the WriterClaim of volume %s: %w", volume.Name, err)
	}
	if _, err := kube.Find(ctx, r.Clusters.DPU.Live, key, claim); err != nil {
		return nil, err
	}
	return claim, nil
}

// mirrorOf is the VolumeAttachment that a DPUVolumeAttachment asks for.
func mirrorOf(s *state, c hostcluster.Clusters) *storagev1alpha1.VolumeAttachment {
	out := &storagev1alpha1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.attachment.Name, Namespace: c.TargetNamespace,
			Labels:      map[string]string{storagev1alpha1.LabelOwnerUID: string(s.attachment.UID)},
			Annotations: map[string]string{storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment: hostcluster.OwnerValue(s.attachment)},
		},
		Spec: storagev1alpha1.VolumeAttachmentSpec{
			NodeName: s.dpu,
			Source: storagev1alpha1.VolumeAttachmentSource{VolumeRef: &storagev1alpha1.ObjectRef{
				Kind: "Volume", APIVersion: storagev1alpha1.GroupVersion.String(), Name: s.volume.Name, Namespace: c.TargetNamespace,
			}},
			FunctionTypeConfig: s.attachment.Spec.FunctionTypeConfig,
			Role:               s.attachment.Spec.Role,
			Warmth:             s.attachment.Spec.Warmth,
		},
	}
	if s.single() {
		out.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim}
	}
	return out
}
