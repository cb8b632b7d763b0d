// Package snapshot turns a StorageSnapshot of the DPU cluster into a snapshot of
// the volume's vendor: it makes a VolumeSnapshot (snapshot.storage.k8s.io) with
// the VolumeSnapshotClass of that vendor's driver, records what was taken, and
// takes all of that back when the StorageSnapshot is deleted. It never takes a
// snapshot twice: what was taken once and is gone stays gone.
package snapshot

import (
	"context"
	"slices"
	"time"

	groupsnapshotv1beta2 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta2"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/dpucluster"
)

// retryAfter is how often the kinds of snapshot.storage.k8s.io are looked for,
// which may be installed later.
const retryAfter = 30 * time.Second

// Reconciler has StorageSnapshots taken, and deleted again.
type Reconciler struct {
	// DPU has the indexes of index.DPU.
	DPU kube.Cluster
	// Mapper knows which kinds the API server serves.
	Mapper meta.RESTMapper
	// Clock tells how long a wait has lasted.
	Clock clock.PassiveClock

	kinds, groupKinds kinds
}

// The kinds behind snapshots, and those behind groups beside them.
var (
	snapshotKinds = []schema.GroupVersionKind{
		snapshotv1.SchemeGroupVersion.WithKind("VolumeSnapshot"), snapshotv1.SchemeGroupVersion.WithKind("VolumeSnapshotClass"),
	}
	groupKinds = []schema.GroupVersionKind{
		groupsnapshotv1beta2.SchemeGroupVersion.WithKind("VolumeGroupSnapshot"), groupsnapshotv1beta2.SchemeGroupVersion.WithKind("VolumeGroupSnapshotClass"),
	}
)

// SetupWithManager registers the reconciler and its watches. VolumeSnapshots are
// watched from the first StorageSnapshot on, if they are installed.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	served, err := kube.Serves(r.Mapper, moorv1alpha1.GroupVersion.WithKind("StorageSnapshot"))
	if err != nil {
		return err
	}
	if !served {
		log.Log.Info("no snapshots: the DPU cluster has no kind StorageSnapshot (storage.moor.dev); apply crds/dpu and start again")
		return nil
	}
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("storagesnapshot").
		For(&moorv1alpha1.StorageSnapshot{}).
		Watches(&storagev1alpha1.Volume{}, handler.EnqueueRequestsFromMapFunc(r.ofVolume)).
		Watches(&moorv1alpha1.StorageSnapshot{}, handler.EnqueueRequestsFromMapFunc(r.ofSibling)).
		Build(kube.Retrying(r))
	if err != nil {
		return err
	}
	r.kinds.watch = func() error { return r.watch(mgr, c) }
	r.groupKinds.watch = func() error { return r.watchGroups(mgr, c) }
	return nil
}

func (r *Reconciler) watch(mgr manager.Manager, c controller.Controller) error {
	owner := handler.TypedEnqueueRequestForOwner[*snapshotv1.VolumeSnapshot](mgr.GetScheme(), mgr.GetRESTMapper(), &moorv1alpha1.StorageSnapshot{})
	if err := c.Watch(source.Kind(mgr.GetCache(), &snapshotv1.VolumeSnapshot{}, owner)); err != nil {
		return err
	}
	return c.Watch(source.Kind(mgr.GetCache(), &snapshotv1.VolumeSnapshotClass{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofClass)))
}

// Reconcile takes one StorageSnapshot as far as it can go now.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &moorv1alpha1.StorageSnapshot{}
	found, err := kube.Find(ctx, r.DPU.Client, req.NamespacedName, s)
	if err != nil || !found {
		return ctrl.Result{}, err
	}
	installed, missing, err := r.installed(s)
	if err != nil {
		return ctrl.Result{}, err
	}
	made := &snapshotv1.VolumeSnapshot{}
	switch {
	case !s.DeletionTimestamp.IsZero():
		err = r.remove(ctx, s, installed)
	case !installed:
		err = kube.WaitRetry(retryAfter, "%s", missing)
	default:
		made, err = r.take(ctx, s)
	}
	return r.report(ctx, s, made, err)
}

// installed reports whether the kinds by which the vendor is asked for s are
// there, and what to do if they are not.
func (r *Reconciler) installed(s *moorv1alpha1.StorageSnapshot) (ok bool, missing string, err error) {
	ok, err = r.kinds.installed(r.Mapper, snapshotKinds...)
	if err != nil || !ok {
		return false, "the DPU cluster has no kind VolumeSnapshot (snapshot.storage.k8s.io): install its CRDs and snapshot-controller there, " +
			"csi-snapshotter beside the vendor's driver, and a VolumeSnapshotClass", err
	}
	if s.Spec.Group == nil {
		return true, "", nil
	}
	ok, err = r.groupKinds.installed(r.Mapper, groupKinds...)
	return ok, "the DPU cluster has no kind VolumeGroupSnapshot (groupsnapshot.storage.k8s.io/v1beta2): install its CRDs there, start snapshot-controller " +
		"and csi-snapshotter with the feature gate CSIVolumeGroupSnapshot, and make a VolumeGroupSnapshotClass", err
}

// report writes into the status what became of the pass.
func (r *Reconciler) report(ctx context.Context, s *moorv1alpha1.StorageSnapshot, made *snapshotv1.VolumeSnapshot, outcome error) (ctrl.Result, error) {
	return dpucluster.Report[*moorv1alpha1.StorageSnapshot]{
		Object: s, Finalizer: moorv1alpha1.FinalizerStorageSnapshot,
		Change: func(s *moorv1alpha1.StorageSnapshot, message string) {
			s.Status.Message = message
			if s.DeletionTimestamp.IsZero() {
				s.Status.VolumeSnapshotName = made.Name
				s.Status.ReadyToUse = outcome == nil
			}
		},
	}.Write(ctx, r.DPU.Client, outcome, r.Clock.Now())
}

func (r *Reconciler) ofVolume(ctx context.Context, o client.Object) []reconcile.Request {
	return r.requests(ctx, client.InNamespace(o.GetNamespace()), client.MatchingFields{index.SnapshotByVolume: o.GetName()})
}

// ofClass finds what may wait for a VolumeSnapshotClass: whatever is not asked for.
func (r *Reconciler) ofClass(ctx context.Context, _ *snapshotv1.VolumeSnapshotClass) []reconcile.Request {
	return r.requests(ctx)
}

func (r *Reconciler) requests(ctx context.Context, of ...client.ListOption) []reconcile.Request {
	list := &moorv1alpha1.StorageSnapshotList{}
	if err := r.DPU.Client.List(ctx, list, append(of, client.UnsafeDisableDeepCopy)...); err != nil {
		log.FromContext(ctx).Error(err, "find the snapshots that an event concerns")
		return nil
	}
	return kube.Requests(slices.DeleteFunc(list.Items, func(s moorv1alpha1.StorageSnapshot) bool { return s.Spec.Origin != nil }))
}
