package attachment

import (
	"context"
	"time"

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

// begun reports whether the DPU knows of the attachment as a primary.
func (p *pass) begun() bool {
	return p.mirror != nil && !p.mirror.IsReplica()
}
