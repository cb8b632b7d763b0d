package attachment

import (
	"context"
	"fmt"
	"time"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// forsakenAfter is how long a node's request that nothing was begun for
// outlives its pod. The node gives it back much sooner, unless its kubelet was
// ended in the middle.
const forsakenAfter = 5 * time.Minute

// checkRequest looks at what a node has asked for. It tells a request whose
// node can no longer take it back: nobody but the node would, and its volume
// could not be deleted. Deleting it is an orderly detach, which waits for
// the DPU; it proves nothing and needs no proof.
func (r *Reconciler) checkRequest(ctx context.Context, s *state) error {
	spec := &s.attachment.Spec
	if !spec.OfNode() {
		return nil
	}
	if !r.NodesAsk {
		s.waiting = fmt.Sprintf("node %s asks for the volume by itself, but snap-host-controller runs with --attach-mode=Controller", spec.DPUNodeName)
		return nil
	}
	words, err := r.Users.outOfService(ctx, spec.DPUNodeName)
	if err != nil || words == "" {
		return err
	}
	used, err := r.Users.any(ctx, spec.DPUNodeName, spec.DPUVolumeName)
	s.forsaken = err == nil && !used
	if s.forsaken {
		s.waiting = words + ", and no pod uses the volume there"
	}
	return err
}

// mayAsk is asked before anything is begun for a node, and before it gets the
// right to write: a node may have what a pod that is bound to it uses, and
// nothing else. It guards against a host that asks for another's volume; that
// there is one writer is the claim's doing, not this rule's.
func (r *Reconciler) mayAsk(ctx context.Context, s *state) error {
	spec := &s.attachment.Spec
	if !spec.OfNode() || s.used {
		return nil
	}
	var err error
	if s.used, err = r.Users.any(ctx, spec.DPUNodeName, spec.DPUVolumeName); err != nil || s.used {
		return err
	}
	s.waiting = fmt.Sprintf("node %s asks for volume %s, but no pod that is bound to it uses a claim that is bound to that volume: waiting for such a pod",
		spec.DPUNodeName, spec.DPUVolumeName)
	s.lookAgain = forsakenAfter - r.clock().Since(s.attachment.CreationTimestamp.Time)
	s.forsaken = s.lookAgain <= 0
	return nil
}

// begun reports whether the DPU knows of the attachment as a primary.
func (s *state) begun() bool {
	return s.mirror != nil && s.mirror.Spec.Role != storagev1alpha1.RoleReplica
}
