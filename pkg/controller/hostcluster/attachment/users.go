package attachment

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

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
	case slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService }):
		return "node " + name + " is out of service", nil
	}
	return "", nil
}

// watchUsers starts a pass over what a node has asked for, and its replicas, when a
// user comes or goes, or when the node itself does.
func (r *Reconciler) watchUsers(b *builder.Builder) *builder.Builder {
	return b.
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofUser), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return len(podvolume.ClaimsInUse(e.Object.(*corev1.Pod))) > 0 },
			UpdateFunc: func(e event.UpdateEvent) bool {
				before, now := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
				return len(podvolume.ClaimsInUse(before)) != len(podvolume.ClaimsInUse(now)) || before.DeletionTimestamp.IsZero() != now.DeletionTimestamp.IsZero() && len(podvolume.ClaimsInUse(now)) > 0
			},
			DeleteFunc: func(e event.DeleteEvent) bool { return len(podvolume.Claims(e.Object.(*corev1.Pod))) > 0 },
		})).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.ofPersistent), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool {
				return e.ObjectOld.(*corev1.PersistentVolume).Status.Phase != e.ObjectNew.(*corev1.PersistentVolume).Status.Phase
			},
		})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.ofNode), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return len(e.ObjectOld.(*corev1.Node).Spec.Taints) != len(e.ObjectNew.(*corev1.Node).Spec.Taints)
			},
		}))
}
