package podresync

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// SetupWithManager watches pods from when they are bound to a node until they
// end, PersistentVolumes as they become bound, claims as they grow, and what
// kubelets complain of. Nothing has to watch the attachments: the reconciler looks
// when the time is over.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("podresync").
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool {
				pod := e.Object.(*corev1.Pod)
				return phase(pod) != "" && len(podvolume.Claims(pod)) > 0
			},
			UpdateFunc: func(e event.UpdateEvent) bool {
				before, now := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
				return phase(before) != phase(now) && len(podvolume.Claims(now)) > 0
			},
		})).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.ofPersistent), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool {
				return e.ObjectOld.(*corev1.PersistentVolume).Status.Phase != e.ObjectNew.(*corev1.PersistentVolume).Status.Phase
			},
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.ofClaim), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false }, // the pods come too
			UpdateFunc: func(e event.UpdateEvent) bool {
				return waitsForNode(e.ObjectOld.(*corev1.PersistentVolumeClaim)) != waitsForNode(e.ObjectNew.(*corev1.PersistentVolumeClaim))
			},
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		Watches(&corev1.Event{}, handler.EnqueueRequestsFromMapFunc(ofBackOff), builder.WithPredicates(predicate.Funcs{
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		Complete(kube.Retrying(r))
}

// ofClaim has the pods that use the claim looked at.
func (r *Reconciler) ofClaim(ctx context.Context, o client.Object) []reconcile.Request {
	return r.on(ctx, o.GetNamespace()+"/"+o.GetName())
}

// ofPersistent has the pods looked at that wait for the volume.
func (r *Reconciler) ofPersistent(ctx context.Context, o client.Object) []reconcile.Request {
	pv := o.(*corev1.PersistentVolume)
	if podvolume.HandleOf(pv, r.Drivers...) == "" {
		return nil
	}
	return r.on(ctx, podvolume.BoundTo(pv))
}

// on are the pods on a claim, "namespace/name", that a kubelet has, the only ones
// that matter.
func (r *Reconciler) on(ctx context.Context, claim string) []reconcile.Request {
	pods, err := r.users().Pods(ctx, claim)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "look at the pods on a claim", "claim", claim)
	}
	return kube.Requests(slices.DeleteFunc(pods, func(p corev1.Pod) bool { return phase(&p) == "" }))
}
