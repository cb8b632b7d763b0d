package attachment

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// Users knows which pods of a host use a volume. The cache finds them, and
// the API server itself confirms: a host has no right to what its pods used a
// while ago.
type Users struct {
	podvolume.Users
}

// any reports whether a pod that is bound to the node, and not finished, uses
// the volume.
func (u *Users) any(ctx context.Context, node, volume string) (bool, error) {
	return u.find(ctx, node, volume, func(ctx context.Context, p *corev1.Pod, claim string) (bool, error) {
		return u.Confirm(ctx, p, node, claim)
	})
}

// lasting reports whether one does that is not being deleted either.
func (u *Users) lasting(ctx context.Context, node, volume string) (bool, error) {
	return u.find(ctx, node, volume, func(ctx context.Context, p *corev1.Pod, claim string) (bool, error) {
		found, err := u.Confirm(ctx, p, node, claim)
		return found && p.DeletionTimestamp.IsZero(), err
	})
}

// known reports whether the cache has a pod like that.
func (u *Users) known(ctx context.Context, node, volume string) (bool, error) {
	return u.find(ctx, node, volume, func(_ context.Context, p *corev1.Pod, _ string) (bool, error) {
		return p.DeletionTimestamp.IsZero(), nil
	})
}

// counts decides whether a pod of the cache counts as a use of a claim on a node.
type counts func(ctx context.Context, p *corev1.Pod, claim string) (bool, error)

// find reports whether a pod that the cache has is bound to the node, uses the
// volume, and counts.
func (u *Users) find(ctx context.Context, node, volume string, counts counts) (bool, error) {
	claims, err := u.BoundClaims(ctx, volume)
	if err != nil {
		return false, err
	}
	for _, claim := range claims {
		pods, err := u.PodsOnNode(ctx, node, claim)
		if err != nil {
			return false, err
		}
		for i := range pods {
			if found, err := counts(ctx, &pods[i], claim); found || err != nil {
				return found, err
			}
		}
	}
	return false, nil
}

// outOfService is the reason why no kubelet of the node will unstage a volume
// any more; "" if one may.
func (u *Users) outOfService(ctx context.Context, name string) (string, error) {
	node := &corev1.Node{}
	found, err := kube.Find(ctx, u.Host.Client, client.ObjectKey{Name: name}, node)
	if err == nil && !found {
		found, err = kube.Find(ctx, u.Host.Live, client.ObjectKey{Name: name}, node)
	}
	switch {
	case err != nil:
		return "", err
	case !found:
		return "node " + name + " does not exist", nil
	case takenOutOfService(node):
		return "node " + name + " is out of service", nil
	}
	return "", nil
}

// takenOutOfService reports whether an operator has said that the node is down for
// good.
func takenOutOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}
