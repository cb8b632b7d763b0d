// Package volume turns a Volume of the DPU cluster into a volume of a vendor:
// it chooses the vendor, writes the choice down, makes the vendor's
// PersistentVolumeClaim and records what the vendor made; and it takes all of
// that back, in order, when the Volume is deleted. It never chooses twice,
// never makes a second claim for a volume that had one, and never touches a
// pvc of another.
package volume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/dpucluster"
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
	if err := r.chooseVendor(ctx, v); err != nil {
		return was, err
	}
	pvc, err := r.pvc(ctx, v)
	if err != nil {
		return was, err
	}
	if err := r.adopt(ctx, v, pvc); err != nil {
		return was, err
	}
	return r.change(ctx, v, pvc)
}

// report writes into the status what became of the pass.
func (r *Reconciler) report(ctx context.Context, v *storagev1alpha1.Volume, now changes, outcome error) (ctrl.Result, error) {
	return dpucluster.Report[*storagev1alpha1.Volume]{
		Object: v, Finalizer: storagev1alpha1.FinalizerVolume, Urgent: v.Status.Unreachable,
		Change: func(v *storagev1alpha1.Volume, message string) {
			v.Status.Message, v.Status.Unreachable = message, isUnreachable(outcome)
			v.Status.Expansion, v.Status.Modification = now.expansion, now.modification
			switch {
			case outcome == nil && v.DeletionTimestamp.IsZero():
				v.Status.State = storagev1alpha1.VolumeAvailable
			case v.Status.State == "":
				v.Status.State = storagev1alpha1.VolumeInProgress
			}
		},
	}.Write(ctx, r.DPU.Client, outcome, r.Clock.Now())
}
