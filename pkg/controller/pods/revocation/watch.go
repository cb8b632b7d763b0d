package revocation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// Served reports whether the cluster is one of DPUs, whose attachments are to be answered. It is an error if the kind in which
// revocations are recorded is missing there.
func Served(mgr ctrl.Manager) (bool, error) {
	dpus, err := kube.Serves(mgr.GetRESTMapper(), storagev1alpha1.GroupVersion.WithKind("SVVolumeAttachment"))
	if err != nil || !dpus {
		return false, err
	}
	known, err := kube.Serves(mgr.GetRESTMapper(), moorv1alpha1.GroupVersion.WithKind("PodRevocation"))
	if err == nil && !known {
		err = fmt.Errorf("the cluster has DPUs and no kind PodRevocation: apply crds/pav of this version")
	}
	return err == nil, err
}

// SetupWithManager watches SVVolumeAttachments, and what those wait for that are being deleted.
func (r *Requests) SetupWithManager(mgr ctrl.Manager) error {
	ends := predicate.NewPredicateFuncs(func(o client.Object) bool { return !o.GetDeletionTimestamp().IsZero() })
	return ctrl.NewControllerManagedBy(mgr).
		Named("podrevocationrequest").
		For(&storagev1alpha1.SVVolumeAttachment{}).
		Watches(&storagev1alpha1.VolumeAttachment{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(ends)).
		Watches(&moorv1alpha1.PodRevocation{}, handler.EnqueueRequestsFromMapFunc(ofRevocation)).
		Complete(kube.Retrying(r))
}

// ofRevocation is the request of a PodRevocation.
func ofRevocation(_ context.Context, o client.Object) []reconcile.Request {
	r := o.(*moorv1alpha1.PodRevocation).Spec.Request
	return []reconcile.Request{kube.RequestFor(r.Namespace, r.Name)}
}

// SetupWithManager watches PodRevocations, their pods, and what asks for them.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("podrevocation").
		For(&moorv1alpha1.PodRevocation{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &moorv1alpha1.PodRevocation{}, handler.OnlyControllerOwner())).
		Watches(&storagev1alpha1.SVVolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(r.asked), builder.WithPredicates(kube.Removed)).
		Complete(kube.Retrying(r))
}

// asked is the PodRevocation of a request that is gone.
func (r *Reconciler) asked(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{kube.RequestFor("", nameOf(o.(*storagev1alpha1.SVVolumeAttachment)))}
}
