package volume

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
)

// relabelled lets pass what changes where DPUs are, or which drivers they have.
var relabelled = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) || !sameDrivers(e.ObjectOld, e.ObjectNew)
}}

func sameDrivers(a, b client.Object) bool {
	was, ok := a.(*storagev1.CSINode)
	is, same := b.(*storagev1.CSINode)
	return !ok || !same || equality.Semantic.DeepEqual(was.Spec.Drivers, is.Spec.Drivers)
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
	return []reconcile.Request{kube.RequestFor(o.GetNamespace(), ref.Name)}
}

// ofSource finds the volumes that wait to be copies of a Volume.
func (r *Reconciler) ofSource(ctx context.Context, o client.Object) []reconcile.Request {
	return r.volumes(ctx, o.GetNamespace(), index.CopyByVolume, o.GetName())
}

// ofStorageSnapshot finds the volumes that wait to be made of a snapshot.
func (r *Reconciler) ofStorageSnapshot(ctx context.Context, o client.Object) []reconcile.Request {
	return r.volumes(ctx, o.GetNamespace(), index.CopyBySnapshot, o.GetName())
}

// ofDPU finds the volumes that no DPU could reach where they are to be reached.
func (r *Reconciler) ofDPU(ctx context.Context, _ client.Object) []reconcile.Request {
	return kube.RequestsOf(ctx, r.DPU.Client, &storagev1alpha1.VolumeList{}, client.MatchingFields{index.VolumeUnreachable: "true"})
}

// ofClass finds the volumes that wait for their StorageClass to allow them to
// grow. It goes over all volumes: a class changes about never.
func (r *Reconciler) ofClass(ctx context.Context, class client.Object) []reconcile.Request {
	list := &storagev1alpha1.VolumeList{}
	if err := r.DPU.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "find the volumes of a StorageClass", "class", class.GetName())
		return nil
	}
	return kube.Requests(slices.DeleteFunc(list.Items, func(v storagev1alpha1.Volume) bool {
		return v.Status.Expansion == nil || v.Spec.Volume.CSIReference.StorageClassName != class.GetName()
	}))
}

func (r *Reconciler) volumes(ctx context.Context, namespace, field, value string) []reconcile.Request {
	return kube.RequestsOf(ctx, r.DPU.Client, &storagev1alpha1.VolumeList{}, client.InNamespace(namespace), client.MatchingFields{field: value})
}
