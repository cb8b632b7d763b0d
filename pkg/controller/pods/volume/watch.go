package volume

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

// SetupWithManager watches PodVolumes and all that their steps wait for.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return ctrl.NewControllerManagedBy(mgr).
		Named("podvolume").
		For(&moorv1alpha1.PodVolume{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &moorv1alpha1.PodVolume{}, handler.OnlyControllerOwner())).
		Watches(node, handler.EnqueueRequestsFromMapFunc(r.onNode), builder.WithPredicates(kube.Removed)).
		Watches(&pavv1alpha1.PavProvisioner{}, handler.EnqueueRequestsFromMapFunc(r.ofProvisioner), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.ofClaim), builder.WithPredicates(kube.Removed)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.named), builder.WithPredicates(kube.Removed)).
		Watches(&moorv1alpha1.PodStaging{}, handler.EnqueueRequestsFromMapFunc(ofStaging), builder.WithPredicates(kube.Removed)).
		Complete(kube.Retrying(r))
}

func (r *Reconciler) onNode(ctx context.Context, o client.Object) []reconcile.Request {
	return kube.RequestsOf(ctx, r.Client, &moorv1alpha1.PodVolumeList{}, client.MatchingFields{index.PodVolumeByNode: o.GetName()})
}

// ofProvisioner are the volumes of a provisioner that are not made yet, or are being removed.
func (r *Reconciler) ofProvisioner(ctx context.Context, o client.Object) []reconcile.Request {
	var all moorv1alpha1.PodVolumeList
	if err := r.Client.List(ctx, &all, client.MatchingFields{index.PodVolumeByProvisioner: o.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the volumes of a provisioner", "provisioner", o.GetName())
		return nil
	}
	var out []reconcile.Request
	for i := range all.Items {
		if v := &all.Items[i]; v.Status.Phase != moorv1alpha1.PodVolumeCreated || !v.DeletionTimestamp.IsZero() {
			out = append(out, kube.RequestFor("", v.Name))
		}
	}
	return out
}

// ofClaim is the volume of a claim, if it has one.
func (r *Reconciler) ofClaim(ctx context.Context, o client.Object) []reconcile.Request {
	return r.known(ctx, NameOf(o.(*corev1.PersistentVolumeClaim)))
}

func (r *Reconciler) named(ctx context.Context, o client.Object) []reconcile.Request {
	return r.known(ctx, o.GetName())
}

// known is the request of a PodVolume, if the cache has it: most claims and volumes of a cluster have
// none.
func (r *Reconciler) known(ctx context.Context, name string) []reconcile.Request {
	found, err := kube.Find(ctx, r.Client, client.ObjectKey{Name: name}, &moorv1alpha1.PodVolume{}, client.UnsafeDisableDeepCopy)
	if err != nil || !found {
		return nil
	}
	return []reconcile.Request{kube.RequestFor("", name)}
}

func ofStaging(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{kube.RequestFor("", o.(*moorv1alpha1.PodStaging).Spec.VolumeName)}
}
