// Package volume turns a Volume of the DPU cluster into a volume of a vendor:
// it chooses the vendor, writes the choice down, makes the vendor's
// PersistentVolumeClaim and records what the vendor made; and it takes all of
// that back, in order, when the Volume is deleted. It never chooses twice,
// never makes a second claim for a volume that had one, and never touches a
// claim of somebody else.
package volume

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
)

// Reconciler brings Volumes to Available, and away again.
type Reconciler struct {
	// DPU has the indexes of index.DPU.
	DPU kube.Cluster
	// Clock tells how long a wait has lasted.
	Clock clock.PassiveClock
	// IntN returns a random number of 0..n-1; safe for concurrent use.
	IntN func(n int) int

	choices choices
}

// goneOnly lets pass what has been deleted.
var goneOnly = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	UpdateFunc:  func(event.UpdateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// SetupWithManager registers the reconciler and its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	snapshots, err := kube.Serves(mgr.GetRESTMapper(), moorv1alpha1.GroupVersion.WithKind("StorageSnapshot"))
	if err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named("volume").
		For(&storagev1alpha1.Volume{}).
		Owns(&corev1.PersistentVolumeClaim{}).
		Watches(&storagev1alpha1.StoragePolicy{}, handler.EnqueueRequestsFromMapFunc(r.ofPolicy)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.ofDPU), builder.WithPredicates(relabelled)).
		Watches(&storagev1.CSINode{}, handler.EnqueueRequestsFromMapFunc(r.ofDPU), builder.WithPredicates(relabelled)).
		Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(r.ofClass)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.ofPV)).
		Watches(&storagev1alpha1.VolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(ofAttachment),
			builder.WithPredicates(goneOnly)).
		Watches(&storagev1alpha1.Volume{}, handler.EnqueueRequestsFromMapFunc(r.ofSource))
	if snapshots {
		b = b.Watches(&moorv1alpha1.StorageSnapshot{}, handler.EnqueueRequestsFromMapFunc(r.ofStorageSnapshot))
	}
	return b.Complete(kube.Retrying(r))
}

// Reconcile takes one Volume as far as it can go now.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	v := &storagev1alpha1.Volume{}
	found, err := kube.Find(ctx, r.DPU.Client, req.NamespacedName, v)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !found {
		r.choices.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	was := changes{v.Status.Expansion, v.Status.Modification}
	now, outcome := r.advance(ctx, v, was)
	return r.report(ctx, v, now, outcome)
}

// advance returns how far what was asked for later is; as it was, if the pass
// did not get that far.
func (r *Reconciler) advance(ctx context.Context, v *storagev1alpha1.Volume, was changes) (changes, error) {
	if !v.DeletionTimestamp.IsZero() {
		return was, r.remove(ctx, v)
	}
	if err := r.place(ctx, v); err != nil {
		return was, err
	}
	claim, err := r.claim(ctx, v)
	if err != nil {
		return was, err
	}
	if err := r.adopt(ctx, v, claim); err != nil {
		return was, err
	}
	return r.change(ctx, v, claim)
}

// report writes into the status what became of the pass, once, and only if
// that differs from what is there.
func (r *Reconciler) report(ctx context.Context, v *storagev1alpha1.Volume, now changes, outcome error) (ctrl.Result, error) {
	if apierrors.IsConflict(outcome) {
		return ctrl.Result{}, outcome // the cache is behind, which is no word for the status
	}
	if gone(v) {
		return ctrl.Result{}, outcome
	}
	settled := kube.Settle(outcome, r.Clock.Now())
	if settled.StatusAfter > 0 && !v.Status.Unreachable {
		return ctrl.Result{RequeueAfter: settled.StatusAfter}, nil
	}
	_, err := kube.PatchStatus(ctx, r.DPU.Client, v, func(v *storagev1alpha1.Volume) {
		v.Status.Message, v.Status.Unreachable = settled.Message, isUnreachable(outcome)
		v.Status.Expansion, v.Status.Modification = now.expansion, now.modification
		switch {
		case outcome == nil && v.DeletionTimestamp.IsZero():
			v.Status.State = storagev1alpha1.VolumeAvailable
		case v.Status.State == "":
			v.Status.State = storagev1alpha1.VolumeInProgress
		}
	})
	return ctrl.Result{}, errors.Join(settled.Err, client.IgnoreNotFound(err))
}

// gone reports whether this pass took the last hold off a deleted Volume, or
// there was none.
func gone(v *storagev1alpha1.Volume) bool {
	return !v.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(v, storagev1alpha1.FinalizerVolume)
}

func (r *Reconciler) ofPolicy(ctx context.Context, policy client.Object) []reconcile.Request {
	return r.volumes(ctx, policy.GetNamespace(), index.VolumeWithoutVendorByPolicy, policy.GetName())
}

func (r *Reconciler) ofPV(ctx context.Context, o client.Object) []reconcile.Request {
	ref := o.(*corev1.PersistentVolume).Spec.ClaimRef
	if ref == nil {
		return nil
	}
	return r.volumes(ctx, ref.Namespace, index.VolumeByPVC, ref.Name)
}

func ofAttachment(_ context.Context, o client.Object) []reconcile.Request {
	ref := o.(*storagev1alpha1.VolumeAttachment).Spec.Source.VolumeRef
	if ref == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: ref.Name}}}
}

func (r *Reconciler) volumes(ctx context.Context, namespace, field, value string) []reconcile.Request {
	list := &storagev1alpha1.VolumeList{}
	err := r.DPU.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{field: value}, client.UnsafeDisableDeepCopy)
	if err != nil {
		log.FromContext(ctx).Error(err, "find the volumes that an event concerns", "field", field, "value", value)
		return nil
	}
	out := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		out[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return out
}
