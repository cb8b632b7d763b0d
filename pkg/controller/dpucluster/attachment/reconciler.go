// Package attachment asks the vendor to let a DPU use a volume: for each
// VolumeAttachment of the DPU cluster it makes an SVVolumeAttachment, where
// the vendor's driver wants one, and says in status.storageAttached when the
// DPU may go on. It takes that back only after the DPU let go of the volume,
// and lets a VolumeAttachment end only after the vendor did. It never writes
// status.dpu, nor the epoch.
package attachment

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/dpucluster"
)

// Reconciler keeps the storage side of VolumeAttachments.
type Reconciler struct {
	// DPU has the indexes of index.DPU.
	DPU kube.Cluster
	// Clock tells how long a wait has lasted.
	Clock clock.PassiveClock

	// made are the SVVolumeAttachments that were made within kube.CacheLag and that the cache
	// has not shown yet, by the attachment that asks: the write that precedes the making
	// starts another pass, which would make it again and be refused.
	made kube.Recent[*storagev1alpha1.SVVolumeAttachment]
}

// notGone lets pass what appeared or changed.
var notGone = predicate.Funcs{
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// SetupWithManager registers the reconciler and its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("volumeattachment").
		For(&storagev1alpha1.VolumeAttachment{}).
		Watches(&storagev1alpha1.SVVolumeAttachment{}, &handler.EnqueueRequestForObject{}).
		Watches(&storagev1alpha1.Volume{}, handler.EnqueueRequestsFromMapFunc(r.ofVolume), builder.WithPredicates(notGone)).
		Watches(&storagev1.CSIDriver{}, handler.EnqueueRequestsFromMapFunc(r.ofDriver), builder.WithPredicates(notGone)).
		Complete(kube.Retrying(r))
}

// Reconcile takes one VolumeAttachment as far as it can go now.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	a := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, r.DPU.Client, req.NamespacedName, a)
	if err != nil || !found {
		return ctrl.Result{}, err
	}
	o := outcome{attached: a.Status.StorageAttached, detaching: !a.DeletionTimestamp.IsZero()}
	if o.detaching {
		o.err = r.detach(ctx, a, &o.attached)
	} else {
		o.err = r.attach(ctx, a, &o.attached)
	}
	return r.report(ctx, a, o)
}

// outcome is what became of a pass.
type outcome struct {
	attached bool
	// detaching: the cache has the deletion, so no pass after this one asks the vendor
	// to attach. That the answer to a patch tells of it is not enough.
	detaching bool
	err       error
}

// report writes into the status what became of the pass.
func (r *Reconciler) report(ctx context.Context, a *storagev1alpha1.VolumeAttachment, o outcome) (ctrl.Result, error) {
	return dpucluster.Report[*storagev1alpha1.VolumeAttachment]{
		Object: a, Finalizer: storagev1alpha1.FinalizerVolumeAttachment,
		Urgent: o.attached != a.Status.StorageAttached || o.detaching != a.Status.StorageDetaching,
		Change: func(a *storagev1alpha1.VolumeAttachment, message string) {
			a.Status.StorageAttached, a.Status.StorageMessage, a.Status.StorageDetaching = o.attached, message, o.detaching
		},
	}.Write(ctx, r.DPU.Client, o.err, r.Clock.Now())
}

func (r *Reconciler) ofVolume(ctx context.Context, v client.Object) []reconcile.Request {
	return kube.RequestsOf(ctx, r.DPU.Client, &storagev1alpha1.VolumeAttachmentList{},
		client.InNamespace(v.GetNamespace()), client.MatchingFields{index.VolumeAttachmentByVolume: v.GetName()})
}

func (r *Reconciler) ofDriver(ctx context.Context, driver client.Object) []reconcile.Request {
	list := &storagev1alpha1.VolumeList{}
	err := r.DPU.Client.List(ctx, list, client.MatchingFields{index.VolumeByDriver: driver.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		log.FromContext(ctx).Error(err, "find the volumes of a driver", "driver", driver.GetName())
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		out = append(out, r.ofVolume(ctx, &list.Items[i])...)
	}
	return out
}
