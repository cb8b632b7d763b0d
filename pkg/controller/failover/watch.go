package failover

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/failover/detach"
)

// SetupWithManager watches hosts, Nodes and attachments of the host cluster, and
// attachments, claims and what DPUs report of their hosts in the DPU cluster.
// Heartbeats alone start no pass: each host is looked at when all its witnesses
// might be silent, and nodelifecycle turns the silence of one into conditions,
// whose change starts a pass.
func (f *Failover) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("failover").
		For(&moorv1alpha1.DPUStorageNode{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: hostChanged})).
		Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeChanged})).
		Watches(&storagev1alpha1.DPUVolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(ofAttachment), builder.WithPredicates(detach.Going)).
		WatchesRawSource(source.Kind(f.DPU.Cache, &moorv1alpha1.DPUStorageNode{}, handler.TypedEnqueueRequestsFromMapFunc(f.ofReport), f.observedChanged())).
		WatchesRawSource(source.Kind(f.DPU.Cache, &storagev1alpha1.VolumeAttachment{}, handler.TypedEnqueueRequestsFromMapFunc(f.ofMirror))).
		WatchesRawSource(source.Kind(f.DPU.Cache, &storagev1alpha1.SVVolumeAttachment{}, handler.TypedEnqueueRequestsFromMapFunc(f.ofRevoked))).
		WatchesRawSource(source.Kind(f.DPU.Cache, &moorv1alpha1.WriterClaim{}, handler.TypedEnqueueRequestsFromMapFunc(f.ofClaim))).
		Complete(kube.Retrying(f))
}

// hostChanged passes anything but the next heartbeat.
func hostChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*moorv1alpha1.DPUStorageNode)
	after, also := e.ObjectNew.(*moorv1alpha1.DPUStorageNode)
	if !ok || !also {
		return true
	}
	return before.Spec != after.Spec || !equality.Semantic.DeepEqual(before.Status.Conditions, after.Status.Conditions) ||
		!equality.Semantic.DeepEqual(observed(before), observed(after))
}

// observed is what a DPU reports of its host.
func observed(n *moorv1alpha1.DPUStorageNode) *moorv1alpha1.HostObservation {
	if n.Status.DPU == nil {
		return nil
	}
	return n.Status.DPU.Host
}

// observedChanged passes changes of what DPUs report of their hosts. It sees each
// heartbeat, and records it: a lease counts from when its renewal was seen.
func (f *Failover) observedChanged() predicate.TypedFuncs[*moorv1alpha1.DPUStorageNode] {
	return predicate.TypedFuncs[*moorv1alpha1.DPUStorageNode]{
		UpdateFunc: func(e event.TypedUpdateEvent[*moorv1alpha1.DPUStorageNode]) bool {
			f.renewals.note(e.ObjectNew, f.Clock.Now())
			return !equality.Semantic.DeepEqual(observed(e.ObjectOld), observed(e.ObjectNew))
		},
	}
}

func (f *Failover) ofReport(ctx context.Context, dpu *moorv1alpha1.DPUStorageNode) []reconcile.Request {
	return f.ofDPU(ctx, dpu.Name)
}

func nodeChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, also := e.ObjectNew.(*corev1.Node)
	return !ok || !also || apiOf(before) != apiOf(after) || !equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
}

func ofAttachment(_ context.Context, o client.Object) []reconcile.Request {
	a, ok := o.(*storagev1alpha1.DPUVolumeAttachment)
	if !ok {
		return nil
	}
	return []reconcile.Request{kube.RequestFor("", a.Spec.DPUNodeName)}
}

func (f *Failover) ofMirror(ctx context.Context, a *storagev1alpha1.VolumeAttachment) []reconcile.Request {
	if a.DeletionTimestamp.IsZero() && a.Status.DPU.RetiredEpoch == 0 {
		return nil
	}
	return f.ofDPU(ctx, a.Spec.NodeName)
}

func (f *Failover) ofRevoked(ctx context.Context, a *storagev1alpha1.SVVolumeAttachment) []reconcile.Request {
	if a.DeletionTimestamp.IsZero() {
		return nil
	}
	return f.ofDPU(ctx, a.Spec.NodeName)
}

func (f *Failover) ofClaim(ctx context.Context, c *moorv1alpha1.WriterClaim) []reconcile.Request {
	if c.Status == nil || c.Status.Holder == "" || c.Status.Phase != moorv1alpha1.ClaimFencing && c.Spec.OperatorReceipt == nil {
		return nil
	}
	return f.ofDPU(ctx, c.Status.Holder)
}

func (f *Failover) ofDPU(ctx context.Context, dpu string) []reconcile.Request {
	return kube.RequestsOf(ctx, f.Host.Client, &moorv1alpha1.DPUStorageNodeList{}, client.MatchingFields{index.DPUStorageNodeByDPU: dpu})
}
