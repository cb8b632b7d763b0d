package attachment

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// orphanedAfter is how long a node's request that nothing was begun for
// outlives its pod. The node gives it back much sooner, unless its kubelet was
// ended in the middle.
const orphanedAfter = 5 * time.Minute

// checkRequest looks at what a node has asked for. It finds requests whose node
// can no longer take them back: only the node would, and the volume could not be
// deleted. Deleting such a request is an orderly detach, which waits for the DPU;
// it proves nothing and needs no proof.
func (r *Reconciler) checkRequest(ctx context.Context, p *pass) error {
	spec := &p.attachment.Spec
	if !spec.OfNode() {
		return nil
	}
	if !r.NodesAsk {
		return kube.WaitFor("node %s asks for the volume by itself, but snap-host-controller runs with --attach-mode=Controller", spec.DPUNodeName)
	}
	reason, err := r.Users.outOfService(ctx, spec.DPUNodeName)
	if err != nil || reason == "" {
		return err
	}
	used, err := r.Users.any(ctx, spec.DPUNodeName, spec.DPUVolumeName)
	if err != nil || used {
		return err
	}
	p.orphaned = true
	return kube.WaitFor("%s, and no pod uses the volume there", reason)
}

// mayAsk waits before anything is begun for a node, and before it gets the right to
// write: a node may have what a pod that is bound to it uses, and nothing else. It
// guards against a host that asks for another's volume; that
// there is one writer is the claim's doing, not this rule's.
func (r *Reconciler) mayAsk(ctx context.Context, p *pass) error {
	spec := &p.attachment.Spec
	if !spec.OfNode() || p.used {
		return nil
	}
	var err error
	if p.used, err = r.Users.any(ctx, spec.DPUNodeName, spec.DPUVolumeName); err != nil || p.used {
		return err
	}
	left := orphanedAfter - r.clock().Since(p.attachment.CreationTimestamp.Time)
	p.orphaned = left <= 0
	return kube.WaitRetry(left, "node %s asks for volume %s, but no pod that is bound to it uses a claim that is bound to that volume: waiting for such a pod",
		spec.DPUNodeName, spec.DPUVolumeName)
}

// outdatedAgain is when an attachment is looked at again that goes, as the API server says
// and the cache does not.
const outdatedAgain = time.Second

// stillAsked asks the API server itself whether the attachment is there to stay, last before
// something is made for it in the DPU cluster: what is made for one that is gone,
// nothing would take back, and it would hold the right to write.
func (r *Reconciler) stillAsked(ctx context.Context, p *pass) error {
	live := &storagev1alpha1.DPUVolumeAttachment{}
	found, err := kube.Find(ctx, r.Clusters.Host.Live, client.ObjectKeyFromObject(p.attachment), live)
	if err != nil {
		return err
	}
	if p.outdated = !found || live.UID != p.attachment.UID || !live.DeletionTimestamp.IsZero(); p.outdated {
		return kube.WaitRetry(outdatedAgain, "DPUVolumeAttachment %s is gone, or on its way", p.attachment.Name)
	}
	return nil
}

// succeed ends what was made for an earlier attachment of this name, and waits until it is
// gone. That one is gone itself, since this one stands: it was read after what it left.
func (r *Reconciler) succeed(ctx context.Context, p *pass) error {
	if _, ours := p.mirror.Labels[storagev1alpha1.LabelOwnerUID]; ours && p.mirror.DeletionTimestamp.IsZero() {
		if err := r.stillAsked(ctx, p); err != nil {
			return err
		}
		if err := kube.Delete(ctx, r.Clusters.DPU.Client, p.mirror); err != nil {
			return err
		}
	}
	return kube.WaitFor("a VolumeAttachment %s of an earlier attachment of this name is still being removed", p.mirror.Name)
}

// begun reports whether the DPU knows of the attachment as a primary.
func (p *pass) begun() bool {
	return p.mirror != nil && !p.mirror.IsReplica()
}
