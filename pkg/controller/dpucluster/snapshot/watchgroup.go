package snapshot

import (
	"context"

	groupsnapshotv1beta2 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta2"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
)

// watchGroups wakes the snapshots of a group when something becomes of it, of
// its class, or of what snapshot-controller has made for it.
func (r *Reconciler) watchGroups(mgr manager.Manager, c controller.Controller) error {
	cache := mgr.GetCache()
	if err := c.Watch(source.Kind(cache, &groupsnapshotv1beta2.VolumeGroupSnapshot{},
		handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, o *groupsnapshotv1beta2.VolumeGroupSnapshot) []reconcile.Request {
			return r.ofGroup(ctx, o.Namespace, o.Name)
		}))); err != nil {
		return err
	}
	if err := c.Watch(source.Kind(cache, &snapshotv1.VolumeSnapshot{},
		handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, o *snapshotv1.VolumeSnapshot) []reconcile.Request {
			return r.ofGroup(ctx, o.Namespace, groupNameOf(o))
		}))); err != nil {
		return err
	}
	return c.Watch(source.Kind(cache, &groupsnapshotv1beta2.VolumeGroupSnapshotClass{},
		handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, _ *groupsnapshotv1beta2.VolumeGroupSnapshotClass) []reconcile.Request {
			return r.requests(ctx)
		})))
}

// ofSibling wakes the other snapshots of a group: they go together.
func (r *Reconciler) ofSibling(ctx context.Context, o client.Object) []reconcile.Request {
	s, ok := o.(*moorv1alpha1.StorageSnapshot)
	if !ok || s.Spec.Group == nil {
		return nil
	}
	return r.ofGroup(ctx, s.Namespace, s.Spec.Group.Name)
}

func (r *Reconciler) ofGroup(ctx context.Context, namespace, name string) []reconcile.Request {
	if name == "" {
		return nil
	}
	list := &moorv1alpha1.StorageSnapshotList{}
	err := r.DPU.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{index.SnapshotByGroup: name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		log.FromContext(ctx).Error(err, "find the snapshots of a group", "group", name)
		return nil
	}
	return kube.Requests(list.Items)
}
