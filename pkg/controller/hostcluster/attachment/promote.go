package attachment

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/writer"
)

// promote tells the DPU that the attachment is a primary, and under which
// epoch.
func (r *Reconciler) promote(ctx context.Context, p *pass, to promotion) error {
	to.replica, to.warmth = p.mirror.IsReplica(), observe(p).warmth()
	wrote, err := kube.Patch(ctx, r.Clusters.DPU.Client, p.mirror, func(m *storagev1alpha1.VolumeAttachment) {
		if m.IsReplica() {
			m.Spec.Role = storagev1alpha1.RolePrimary
		}
		m.Spec.Epoch = to.epoch
	})
	if wrote {
		r.tellPromoted(p, to)
	}
	return err
}

// promoteEarly decides whether the replica of a single-writer volume gets what a
// primary gets before its host asks for it: once the scheduler has put a pod on
// its host, the host will. One that was promoted early for a pod that came to
// nothing is deleted as it was read, which takes the right to write back in order:
// if its host has asked in the meantime, it is a primary, and stays.
func (r *Reconciler) promoteEarly(ctx context.Context, p *pass) error {
	if !p.replica() || !p.single() {
		return nil
	}
	var err error
	if p.early, err = r.expected(ctx, p); err != nil || p.early {
		return err
	}
	p.orphaned, err = r.promotedEarly(ctx, p)
	return err
}

// promotedEarly reports whether the replica was granted the right to write, also if
// its DPU does not know of it yet. A grant that the cache lacks starts another pass.
func (r *Reconciler) promotedEarly(ctx context.Context, p *pass) (bool, error) {
	if p.begun() {
		return true, nil
	}
	writerClaim := &moorv1alpha1.WriterClaim{}
	found, err := kube.Find(ctx, r.Clusters.DPU.Client, r.Clusters.Target(p.volume.Name), writerClaim)
	return found && writer.GrantedFor(writerClaim, p.attachment.Name), err
}

// expected reports whether the replica's host will ask for the volume, and no
// other does: a pod that stays is bound to it and uses the volume, a kubelet is in
// service there, and no primary waits for the right to write or has it. All of it as
// the caches know it; the pod is confirmed before the grant.
func (r *Reconciler) expected(ctx context.Context, p *pass) (bool, error) {
	spec := &p.attachment.Spec
	used, err := r.Users.known(ctx, spec.DPUNodeName, spec.DPUVolumeName)
	if err != nil || !used {
		return false, err
	}
	reason, err := r.Users.outOfService(ctx, spec.DPUNodeName)
	if err != nil || reason != "" {
		return false, err
	}
	rival, err := r.rival(ctx, p)
	return !rival, err
}

// rival reports whether the volume has a primary that is to stay: neither it nor
// what was made for it in the DPU cluster is being deleted.
func (r *Reconciler) rival(ctx context.Context, p *pass) (bool, error) {
	var list storagev1alpha1.DPUVolumeAttachmentList
	volume := client.MatchingFields{index.DPUVolumeAttachmentByVolume: p.attachment.Spec.DPUVolumeName}
	if err := r.Clusters.Host.Client.List(ctx, &list, client.InNamespace(r.Clusters.Namespace), volume); err != nil {
		return false, fmt.Errorf("list the attachments of volume %s: %w", p.attachment.Spec.DPUVolumeName, err)
	}
	for i := range list.Items {
		a := &list.Items[i]
		if a.Spec.Role == storagev1alpha1.RoleReplica || !a.DeletionTimestamp.IsZero() {
			continue
		}
		mirror := &storagev1alpha1.VolumeAttachment{}
		found, err := kube.Find(ctx, r.Clusters.DPU.Client, r.Clusters.Target(a.Name), mirror)
		if err != nil || !found || mirror.DeletionTimestamp.IsZero() {
			return true, err
		}
	}
	return false, nil
}

// rivalry lets pass that a volume gets a primary, or that one goes.
var rivalry = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return primary(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return primary(e.ObjectNew) && (!primary(e.ObjectOld) || e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero())
	},
	DeleteFunc:  func(e event.DeleteEvent) bool { return primary(e.Object) },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

func primary(o client.Object) bool {
	a, ok := o.(*storagev1alpha1.DPUVolumeAttachment)
	return ok && a.Spec.Role != storagev1alpha1.RoleReplica
}

// ofRival maps to the replicas of a primary's volume.
func (r *Reconciler) ofRival(ctx context.Context, o client.Object) []reconcile.Request {
	a, ok := o.(*storagev1alpha1.DPUVolumeAttachment)
	if !ok {
		return nil
	}
	siblings := r.list(ctx, index.DPUVolumeAttachmentByVolume, a.Spec.DPUVolumeName)
	return kube.Requests(slices.DeleteFunc(siblings, func(s storagev1alpha1.DPUVolumeAttachment) bool { return primary(&s) }))
}
