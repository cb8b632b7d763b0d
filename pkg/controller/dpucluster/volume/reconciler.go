// Package volume turns a Volume of the DPU cluster into a volume of a vendor:
// it chooses the vendor, writes the choice down, makes the vendor's
// PersistentVolumeClaim and records what the vendor made; and it takes all of
// that back, in order, when the Volume is deleted. It never chooses twice,
// never makes a second claim for a volume that had one, and never touches a
// pvc of another.
package volume

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
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
	// Recorder tells of what stays with a vendor.
	Recorder record.EventRecorder

	choices choices
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
		Watches(&storagev1alpha1.StorageVendor{}, handler.EnqueueRequestsFromMapFunc(r.ofVendor)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.ofDPU), builder.WithPredicates(relabelled)).
		Watches(&storagev1.CSINode{}, handler.EnqueueRequestsFromMapFunc(r.ofDPU), builder.WithPredicates(relabelled)).
		Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(r.ofClass)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.ofPV)).
		Watches(&storagev1alpha1.VolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(ofAttachment),
			builder.WithPredicates(kube.Removed)).
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
		r.choices.know(req.NamespacedName, "")
		return ctrl.Result{}, nil
	}
	p := &pass{volume: v, cluster: r.DPU, choices: &r.choices, intN: r.IntN, recorder: r.Recorder, now: r.Clock.Now()}
	now, outcome := p.advance(ctx)
	return r.report(ctx, v, now, outcome)
}

// advance returns how far what was asked for later is; as it was, if the pass
// did not get that far.
func (p *pass) advance(ctx context.Context) (changes, error) {
	was := changes{expansion: p.volume.Status.Expansion, modification: p.volume.Status.Modification}
	if !p.volume.DeletionTimestamp.IsZero() {
		return was, p.remove(ctx)
	}
	if err := p.chooseVendor(ctx); err != nil {
		return was, err
	}
	pvc, err := p.pvc(ctx)
	if err != nil {
		return was, err
	}
	if err := p.adopt(ctx, pvc); err != nil {
		return was, err
	}
	return p.change(ctx, pvc)
}

// report writes into the status what became of the pass.
func (r *Reconciler) report(ctx context.Context, v *storagev1alpha1.Volume, now changes, outcome error) (ctrl.Result, error) {
	result, err := dpucluster.Report[*storagev1alpha1.Volume]{
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
	if result.RequeueAfter == 0 {
		result.RequeueAfter = now.again
	}
	return result, err
}

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

// ofVendor finds the volumes that may wait for the vendor to let more hosts have one.
func (r *Reconciler) ofVendor(ctx context.Context, vendor client.Object) (out []reconcile.Request) {
	policies := kube.RequestsOf(ctx, r.DPU.Client, &storagev1alpha1.StoragePolicyList{},
		client.InNamespace(vendor.GetNamespace()), client.MatchingFields{index.StoragePolicyByVendor: vendor.GetName()})
	for _, policy := range policies {
		out = append(out, r.volumes(ctx, policy.Namespace, index.VolumeWithoutVendorByPolicy, policy.Name)...)
	}
	return out
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

// volumes are those of a namespace. A PersistentVolume may be for a claim of any other, which the cache
// does not have and refuses to be asked for.
func (r *Reconciler) volumes(ctx context.Context, namespace, field, value string) []reconcile.Request {
	all := kube.RequestsOf(ctx, r.DPU.Client, &storagev1alpha1.VolumeList{}, client.MatchingFields{field: value})
	return slices.DeleteFunc(all, func(q reconcile.Request) bool { return q.Namespace != namespace })
}
