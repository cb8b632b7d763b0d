package wake

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// The field indexes.
const (
	indexClaim = "claims of a starting pod"
	indexBound = "spec.claimRef"
	indexPlace = "node and volume"
)

// Index registers the field indexes that the reconciler reads by.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	return kube.AddIndexes(
		ctx, indexer,
		kube.IndexOf(indexClaim, claims),
		kube.IndexOf(indexBound, func(pv *corev1.PersistentVolume) []string { return kube.Some(podvolume.BoundTo(pv)) }),
		kube.IndexOf(indexPlace, func(a *storagev1alpha1.DPUVolumeAttachment) []string {
			return []string{place(a.Spec.DPUNodeName, a.Spec.DPUVolumeName)}
		}),
	)
}

// claims are those of a pod that is starting, the only ones that matter.
func claims(pod *corev1.Pod) []string {
	if !starting(pod) {
		return nil
	}
	return podvolume.Claims(pod)
}

func place(node, volume string) string { return node + " " + volume }

// SetupWithManager watches pods from when they are bound to a node until they
// run, and PersistentVolumes as they become bound. Nothing has to watch the
// attachments: the reconciler looks when the time is over.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("wake").
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return len(claims(e.Object.(*corev1.Pod))) > 0 },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return len(claims(e.ObjectOld.(*corev1.Pod))) != len(claims(e.ObjectNew.(*corev1.Pod)))
			},
		})).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.ofPersistent), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool {
				return e.ObjectOld.(*corev1.PersistentVolume).Status.Phase != e.ObjectNew.(*corev1.PersistentVolume).Status.Phase
			},
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		Complete(kube.Retrying(r))
}

// ofPersistent wakes the pods that wait for the volume.
func (r *Reconciler) ofPersistent(ctx context.Context, o client.Object) []reconcile.Request {
	pv := o.(*corev1.PersistentVolume)
	if podvolume.HandleOf(r.Driver, pv) == "" {
		return nil
	}
	var pods corev1.PodList
	if err := r.Host.List(ctx, &pods, client.MatchingFields{indexClaim: podvolume.BoundTo(pv)}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the pods on a claim", "claim", podvolume.BoundTo(pv))
	}
	out := make([]reconcile.Request, len(pods.Items))
	for i := range pods.Items {
		out[i].NamespacedName = client.ObjectKeyFromObject(&pods.Items[i])
	}
	return out
}
