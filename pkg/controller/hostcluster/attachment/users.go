package attachment

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// The field indexes by which Users looks.
const (
	indexHandle = "spec.csi.volumeHandle"
	indexUse    = "node and claim"
)

// Users knows which pods of a host use a volume. The cache finds them, and
// the API server itself confirms: a host has no right to what its pods used a
// while ago.
type Users struct {
	// Host reads from a cache with the indexes of IndexUsers and of
	// podvolume.Index; HostLive reads the API server itself.
	Host, HostLive client.Reader
	// Driver is the name of the CSI driver.
	Driver string
}

// IndexUsers registers the field indexes of PersistentVolumes and pods.
func IndexUsers(ctx context.Context, indexer client.FieldIndexer) error {
	return kube.AddIndexes(
		ctx, indexer,
		kube.IndexOf(indexHandle, func(pv *corev1.PersistentVolume) []string { return kube.Some(podvolume.Handle(pv)) }),
		kube.IndexOf(indexUse, uses),
	)
}

// CacheUsers says how the cache is to hold pods: of all namespaces, with no
// more of them than is read.
func CacheUsers() map[client.Object]cache.ByObject {
	everywhere := map[string]cache.Config{cache.AllNamespaces: {}}
	return map[client.Object]cache.ByObject{&corev1.Pod{}: {Namespaces: everywhere, Transform: podvolume.Slim}}
}

// uses are the claims that the pod uses on its host, each as "host namespace/name".
func uses(p *corev1.Pod) []string {
	if p.Spec.NodeName == "" || podvolume.Finished(p) {
		return nil
	}
	claims := podvolume.Claims(p)
	for i := range claims {
		claims[i] = use(p.Spec.NodeName, claims[i])
	}
	return claims
}

func use(node, claim string) string { return node + " " + claim }

// any reports whether a pod that is bound to the node, and not finished, uses
// the volume.
func (u *Users) any(ctx context.Context, node, volume string) (bool, error) {
	return u.find(ctx, node, volume, u.confirmed)
}

// lasting reports whether one does that is not being deleted either.
func (u *Users) lasting(ctx context.Context, node, volume string) (bool, error) {
	return u.find(ctx, node, volume, func(ctx context.Context, p *corev1.Pod, use string) (bool, error) {
		found, err := u.confirmed(ctx, p, use)
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
type counts func(ctx context.Context, p *corev1.Pod, use string) (bool, error)

// confirmed has the API server itself say so, and leaves in p what it says.
func (u *Users) confirmed(ctx context.Context, p *corev1.Pod, use string) (bool, error) {
	found, err := kube.Find(ctx, u.HostLive, client.ObjectKeyFromObject(p), p)
	return found && slices.Contains(uses(p), use), err
}

// find reports whether a pod that the cache has is bound to the node, uses the
// volume, and counts.
func (u *Users) find(ctx context.Context, node, volume string, counts counts) (bool, error) {
	var volumes corev1.PersistentVolumeList
	if err := u.Host.List(ctx, &volumes, client.MatchingFields{indexHandle: volume}); err != nil {
		return false, fmt.Errorf("find the PersistentVolume of volume %s: %w", volume, err)
	}
	for i := range volumes.Items {
		pv := &volumes.Items[i]
		// Only a claim that is bound counts: anybody can write a claim that
		// names a PersistentVolume.
		if podvolume.HandleOf(u.Driver, pv) == "" || pv.Status.Phase != corev1.VolumeBound || pv.Spec.ClaimRef == nil {
			continue
		}
		if found, err := u.onClaim(ctx, use(node, podvolume.BoundTo(pv)), counts); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

func (u *Users) onClaim(ctx context.Context, wanted string, counts counts) (bool, error) {
	var pods corev1.PodList
	if err := u.Host.List(ctx, &pods, client.MatchingFields{indexUse: wanted}); err != nil {
		return false, fmt.Errorf("list the pods on %s: %w", wanted, err)
	}
	for i := range pods.Items {
		if found, err := counts(ctx, &pods.Items[i], wanted); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// volumes are those behind the claims of a pod.
func (u *Users) volumes(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	var out []string
	for _, claim := range podvolume.Claims(pod) {
		behind, err := podvolume.Behind(ctx, u.Host, u.Driver, claim)
		if err != nil {
			return nil, err
		}
		for i := range behind {
			out = append(out, podvolume.Handle(&behind[i]))
		}
	}
	return out, nil
}

// outOfService says in words why no kubelet of the node will unstage a volume
// any more; "" if one may.
func (u *Users) outOfService(ctx context.Context, name string) (string, error) {
	node := &corev1.Node{}
	found, err := kube.Find(ctx, u.Host, client.ObjectKey{Name: name}, node)
	if err == nil && !found {
		found, err = kube.Find(ctx, u.HostLive, client.ObjectKey{Name: name}, node)
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

// watchUsers wakes what a node has asked for, and its replicas, when a user comes
// or goes, or when the node itself does.
func (r *Reconciler) watchUsers(b *builder.Builder) *builder.Builder {
	return b.
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofUser), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return len(uses(e.Object.(*corev1.Pod))) > 0 },
			UpdateFunc: func(e event.UpdateEvent) bool {
				before, now := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
				return len(uses(before)) != len(uses(now)) || before.DeletionTimestamp.IsZero() != now.DeletionTimestamp.IsZero() && len(uses(now)) > 0
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
