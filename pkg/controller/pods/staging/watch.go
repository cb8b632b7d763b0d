package staging

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
)

// SetupWithManager watches PodStagings and all that their steps wait for.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return ctrl.NewControllerManagedBy(mgr).
		Named("podstaging").
		For(&moorv1alpha1.PodStaging{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &moorv1alpha1.PodStaging{}, handler.OnlyControllerOwner())).
		Watches(node, handler.EnqueueRequestsFromMapFunc(r.onNode), builder.WithPredicates(kube.Removed)).
		Watches(&pavv1alpha1.PavProvisioner{}, handler.EnqueueRequestsFromMapFunc(r.ofProvisioner), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(kube.Retrying(r))
}

func (r *Reconciler) onNode(ctx context.Context, o client.Object) []reconcile.Request {
	return kube.RequestsOf(ctx, r.Client, &moorv1alpha1.PodStagingList{}, client.MatchingFields{index.PodStagingByNode: o.GetName()})
}

func (r *Reconciler) ofProvisioner(ctx context.Context, o client.Object) []reconcile.Request {
	return kube.RequestsOf(ctx, r.Client, &moorv1alpha1.PodStagingList{}, client.MatchingFields{index.PodStagingByProvisioner: o.GetName()})
}
