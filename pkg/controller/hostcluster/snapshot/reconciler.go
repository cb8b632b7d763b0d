// Package snapshot carries a DPUVolumeSnapshot to the DPU cluster as a
// StorageSnapshot, and what was taken there back into its status.
package snapshot

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
)

// Reconciler keeps one DPUVolumeSnapshot and its StorageSnapshot in step.
type Reconciler struct {
	Clusters hostcluster.Clusters
}

// SetupWithManager watches snapshots here, and StorageSnapshots there. Where
// either kind is not installed there are no snapshots, and that is all.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	for _, kind := range []struct {
		mapper meta.RESTMapper
		name   string
	}{{mgr.GetRESTMapper(), "DPUVolumeSnapshot"}, {r.Clusters.DPU.Client.RESTMapper(), "StorageSnapshot"}} {
		served, err := kube.Serves(kind.mapper, moorv1alpha1.GroupVersion.WithKind(kind.name))
		if err != nil {
			return err
		}
		if !served {
			log.Log.Info("no snapshots: a kind is not installed; apply crds and start again", "kind", kind.name)
			return nil
		}
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("dpuvolumesnapshot").
		For(&moorv1alpha1.DPUVolumeSnapshot{}).
		WatchesRawSource(source.Kind(r.Clusters.DPU.Cache, &moorv1alpha1.StorageSnapshot{},
			hostcluster.ToOwner[*moorv1alpha1.StorageSnapshot](moorv1alpha1.AnnotationOwnedByDPUVolumeSnapshot))).
		Complete(kube.Retrying(r))
}

// Reconcile brings the StorageSnapshot and the DPUVolumeSnapshot's status up to
// date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &moorv1alpha1.DPUVolumeSnapshot{}
	found, err := kube.Find(ctx, r.Clusters.Host.Client, req.NamespacedName, s)
	if err != nil || !found {
		return ctrl.Result{}, err
	}
	whose, err := r.Clusters.OfVolume(ctx, s.Status.DPUCluster, client.ObjectKey{Namespace: s.Namespace, Name: s.Spec.DPUVolumeName})
	if err != nil || whose == hostcluster.Theirs {
		return ctrl.Result{}, err
	}
	if !s.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.remove(ctx, s)
	}
	if _, err := kube.AddFinalizer(ctx, r.Clusters.Host.Client, s, moorv1alpha1.FinalizerDPUVolumeSnapshot); err != nil {
		return ctrl.Result{}, err
	}
	p := pass{}
	if err = r.recordCluster(ctx, s, whose); err == nil {
		p.mirror, err = r.carry(ctx, s)
	}
	p.outcome = kube.Settle(err, time.Time{}) // no wait here is of the normal course
	if _, statusErr := kube.PatchStatus(ctx, r.Clusters.Host.Client, s, func(s *moorv1alpha1.DPUVolumeSnapshot) { report(s, p) }); statusErr != nil {
		return ctrl.Result{}, statusErr
	}
	return ctrl.Result{}, p.outcome.Err
}

// recordCluster puts on record in which of several DPU clusters the snapshot is taken, before
// anything is made there: it outlives its volume.
func (r *Reconciler) recordCluster(ctx context.Context, s *moorv1alpha1.DPUVolumeSnapshot, whose hostcluster.Whose) error {
	switch {
	case whose == hostcluster.Unchosen:
		return kube.WaitFor("DPUVolume %s, of which it is to be taken, is not there, or not in a DPU cluster yet", s.Spec.DPUVolumeName)
	case s.Status.DPUCluster == r.Clusters.DPUCluster:
		return nil
	}
	_, err := kube.PatchStatusExact(ctx, r.Clusters.Host.Client, s, func(s *moorv1alpha1.DPUVolumeSnapshot) { s.Status.DPUCluster = r.Clusters.DPUCluster })
	return err
}

// carry makes the StorageSnapshot if it is not there and returns it;
// nil if it belongs to another. One that was there and is gone is not made again: what it held is gone.
func (r *Reconciler) carry(ctx context.Context, s *moorv1alpha1.DPUVolumeSnapshot) (*moorv1alpha1.StorageSnapshot, error) {
	mirror := &moorv1alpha1.StorageSnapshot{}
	found, err := kube.Find(ctx, r.Clusters.DPU.Client, r.Clusters.Target(s.Name), mirror)
	switch {
	case err != nil:
		return nil, err
	case !found && s.Status.Taken != nil:
		return nil, kube.WaitFor("StorageSnapshot %s in DPU cluster %s is gone, and perhaps the data with it: restore it, or delete the snapshot",
			s.Name, r.Clusters.DPUClusterName)
	case !found:
		mirror = mirrorOf(s, r.Clusters)
		if _, err := kube.Create(ctx, r.Clusters.DPU.Client, mirror); err != nil {
			return nil, err
		}
	}
	switch {
	case !hostcluster.OwnedBy(mirror, s):
		return nil, kube.WaitFor("a StorageSnapshot %s of an earlier DPUVolumeSnapshot of this name is still in DPU cluster %s; it has to go first",
			mirror.Name, r.Clusters.DPUClusterName)
	case !mirror.DeletionTimestamp.IsZero():
		return nil, kube.WaitFor("StorageSnapshot %s in DPU cluster %s is being deleted", mirror.Name, r.Clusters.DPUClusterName)
	}
	if !equality.Semantic.DeepEqual(mirror.Spec.Group, s.Spec.Group) {
		return nil, kube.WaitFor("StorageSnapshot %s in DPU cluster %s is not of the group that is asked for: apply crds/dpu there, delete this snapshot, and ask again",
			mirror.Name, r.Clusters.DPUClusterName)
	}
	return mirror, nil
}

func mirrorOf(s *moorv1alpha1.DPUVolumeSnapshot, c hostcluster.Clusters) *moorv1alpha1.StorageSnapshot {
	return &moorv1alpha1.StorageSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.Name, Namespace: c.TargetNamespace,
			Labels:      map[string]string{storagev1alpha1.LabelOwnerUID: string(s.UID)},
			Annotations: map[string]string{moorv1alpha1.AnnotationOwnedByDPUVolumeSnapshot: hostcluster.OwnerValue(s)},
		},
		Spec: moorv1alpha1.StorageSnapshotSpec{VolumeName: s.Spec.DPUVolumeName, Group: s.Spec.Group.DeepCopy()},
	}
}

// remove deletes the StorageSnapshot, waits until it is gone, and lets go.
func (r *Reconciler) remove(ctx context.Context, s *moorv1alpha1.DPUVolumeSnapshot) error {
	mirror := &moorv1alpha1.StorageSnapshot{}
	found, err := r.Clusters.OwnMirror(ctx, s, mirror)
	if err != nil {
		return err
	}
	if !found {
		return kube.RemoveFinalizers(ctx, r.Clusters.Host.Client, s, moorv1alpha1.FinalizerDPUVolumeSnapshot)
	}
	if err := kube.Delete(ctx, r.Clusters.DPU.Client, mirror); err != nil {
		return err
	}
	message := mirror.Status.Message
	if message == "" {
		message = "waiting for the vendor's snapshot to be removed"
	}
	_, err = kube.PatchStatus(ctx, r.Clusters.Host.Client, s, func(s *moorv1alpha1.DPUVolumeSnapshot) { leaving(s, message) })
	return kube.IgnoreNotFound(err)
}
