// Package node copies the DPU's half of a DPUStorageNode from the DPU cluster
// to the host cluster, where a DPU has no credentials: what changes at once,
// mere beats rarely; and with it where the DPU is, as its Node there tells.
package node

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
)

// Reconciler keeps the DPU half of one DPUStorageNode up to date.
type Reconciler struct {
	Clusters hostcluster.Clusters
}

// SetupWithManager watches the nodes of both clusters. A beat alone wakes only when it
// is due to be copied.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("dpustoragenode").
		For(&moorv1alpha1.DPUStorageNode{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: concerns})).
		WatchesRawSource(source.Kind(r.Clusters.DPU.Cache, &moorv1alpha1.DPUStorageNode{},
			handler.TypedEnqueueRequestsFromMapFunc(r.told))).
		WatchesRawSource(source.Kind(r.Clusters.DPU.Cache, &corev1.Node{},
			handler.TypedEnqueueRequestsFromMapFunc(ofDPU[*corev1.Node](r)), predicate.TypedFuncs[*corev1.Node]{UpdateFunc: relabelled})).
		WatchesRawSource(source.Kind(r.Clusters.DPU.Cache, &storagev1.CSINode{},
			handler.TypedEnqueueRequestsFromMapFunc(ofDPU[*storagev1.CSINode](r)))).
		Complete(kube.Retrying(r))
}

// Reconcile copies the DPU's half.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	node := &moorv1alpha1.DPUStorageNode{}
	found, err := kube.Find(ctx, r.Clusters.Host.Client, req.NamespacedName, node)
	if err != nil || !found || node.Spec.DPUName == "" {
		return ctrl.Result{}, err
	}
	there := &moorv1alpha1.DPUStorageNode{}
	found, err = kube.Find(ctx, r.Clusters.DPU.Client, client.ObjectKey{Name: node.Spec.DPUName}, there)
	if err != nil {
		return ctrl.Result{}, err
	}
	place, err := r.place(ctx, node.Spec.DPUName)
	if err != nil {
		return ctrl.Result{}, err
	}
	_, err = kube.PatchStatus(ctx, r.Clusters.Host.Client, node, func(n *moorv1alpha1.DPUStorageNode) {
		n.Status.Topology = place
		if found && tells(n.Status.DPU, there.Status.DPU) {
			n.Status.DPU = there.Status.DPU
		}
	})
	return ctrl.Result{}, err
}

// mirrored is how long beats that tell nothing are left out of the mirror, by the clock
// of the DPU: it is for people. Most DPUs write their object each minute, and all of
// those are copied; of those that write each beat into it, the fifth. Whether a DPU is
// alive is decided by its own cluster.
const mirrored = 45 * time.Second

// tells reports whether there is something to copy: the state, or a beat that
// is due, or one that is not of the same row.
func tells(here, there *moorv1alpha1.DPUState) bool {
	if here == nil || there == nil {
		return here != there
	}
	if since := there.Time.Sub(here.Time.Time); there.Sequence < here.Sequence || since < 0 || since >= mirrored {
		return true
	}
	a, b := *here, *there
	a.Sequence, a.Time, a.Lease = b.Sequence, b.Time, b.Lease
	return !equality.Semantic.DeepEqual(a, b)
}

// concerns lets pass a change of what a pass reads and writes: of what it wrote
// too, as a cache that lacked that may have hidden from told what was to be copied.
func concerns(e event.UpdateEvent) bool {
	old, now := e.ObjectOld.(*moorv1alpha1.DPUStorageNode), e.ObjectNew.(*moorv1alpha1.DPUStorageNode)
	return old.Spec.DPUName != now.Spec.DPUName || !maps.Equal(old.Status.Topology, now.Status.Topology) ||
		!equality.Semantic.DeepEqual(old.Status.DPU, now.Status.DPU)
}

// told maps to the nodes of a DPU for which it tells something to copy.
func (r *Reconciler) told(ctx context.Context, dpu *moorv1alpha1.DPUStorageNode) []reconcile.Request {
	var nodes moorv1alpha1.DPUStorageNodeList
	of := client.MatchingFields{index.DPUStorageNodeByDPU: dpu.Name}
	if err := r.Clusters.Host.Client.List(ctx, &nodes, of, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the nodes of a DPU", "dpu", dpu.Name)
	}
	var out []reconcile.Request
	for i := range nodes.Items {
		if n := &nodes.Items[i]; tells(n.Status.DPU, dpu.Status.DPU) {
			out = append(out, kube.RequestFor("", n.Name))
		}
	}
	return out
}

func ofDPU[T client.Object](r *Reconciler) handler.TypedMapFunc[T, reconcile.Request] {
	return func(ctx context.Context, o T) []reconcile.Request {
		return kube.RequestsOf(ctx, r.Clusters.Host.Client, &moorv1alpha1.DPUStorageNodeList{}, client.MatchingFields{index.DPUStorageNodeByDPU: o.GetName()})
	}
}
