// Package volume carries a DPUVolume to the DPU cluster as a Volume, and what
// was made there back into its status.
package volume

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
)

// Reconciler keeps one DPUVolume and its Volume in step.
type Reconciler struct {
	Clusters hostcluster.Clusters
	// Silent tells whether a DPU has not been heard for the whole timeout. Nil: none is.
	Silent func(dpu string) bool
	// Clock is the machine's if nil.
	Clock clock.PassiveClock

	// idle are the volumes that are attached nowhere, and since when.
	idle kube.Recent[time.Time]
}

// SetupWithManager watches volumes, attachments and policies here, and
// Volumes there, and what DPF attached.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("dpuvolume").
		For(&storagev1alpha1.DPUVolume{}).
		Watches(&storagev1alpha1.DPUVolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(ofAttachment)).
		Watches(&storagev1alpha1.DPUStoragePolicy{}, handler.EnqueueRequestsFromMapFunc(r.ofPolicy)).
		WatchesRawSource(source.Kind(r.Clusters.DPU.Cache, &storagev1alpha1.Volume{},
			hostcluster.ToOwner[*storagev1alpha1.Volume](storagev1alpha1.AnnotationOwnedByDPUVolume))).
		WatchesRawSource(source.Kind(r.Clusters.DPU.Cache, &storagev1alpha1.VolumeAttachment{}, handler.TypedEnqueueRequestsFromMapFunc(r.attachedOf), dpfLets)).
		Complete(kube.Retrying(r))
}

// Reconcile brings the Volume and the DPUVolume's status up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	volume := &storagev1alpha1.DPUVolume{}
	found, err := kube.Find(ctx, r.Clusters.Host.Client, req.NamespacedName, volume)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !found {
		after, err := r.clearUp(ctx, req.Name)
		return ctrl.Result{RequeueAfter: after}, err
	}
	if ours, after, err := r.ours(ctx, volume); err != nil || !ours {
		return ctrl.Result{RequeueAfter: after}, err
	}
	if !volume.DeletionTimestamp.IsZero() {
		after, err := r.remove(ctx, volume)
		return ctrl.Result{RequeueAfter: after}, err
	}
	mirror := &storagev1alpha1.Volume{}
	found, err = kube.Find(ctx, r.Clusters.DPU.Client, r.Clusters.Target(volume.Name), mirror)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !found {
		mirror = nil
	}
	if _, err := kube.AddFinalizer(ctx, r.Clusters.Host.Client, volume, r.Clusters.Finalizer(storagev1alpha1.FinalizerDPUVolume)); err != nil {
		return ctrl.Result{}, err
	}
	p := pass{}
	if p.paths, err = r.pathsOf(ctx, volume); err != nil {
		return ctrl.Result{}, err
	}
	p.mirror, err = r.carry(ctx, volume, mirror)
	p.outcome = kube.Settle(err, time.Time{}) // no wait here is of the normal course
	if _, statusErr := kube.PatchStatus(ctx, r.Clusters.Host.Client, volume, func(v *storagev1alpha1.DPUVolume) {
		report(v, p, r.Clusters)
	}); statusErr != nil {
		return ctrl.Result{}, statusErr
	}
	if p.outcome.Err != nil {
		return ctrl.Result{}, p.outcome.Err
	}
	again, err := r.endMark(ctx, volume)
	return ctrl.Result{RequeueAfter: again}, err
}

// carry makes the Volume if it was never there, lets it ask for what the DPUVolume
// asks for now, and returns it; nil if it is not there or belongs to another. One that DPF
// made for it is taken over. One that
// was there is not made again: it would be empty, and the data may still be somewhere.
func (r *Reconciler) carry(ctx context.Context, volume *storagev1alpha1.DPUVolume, mirror *storagev1alpha1.Volume) (*storagev1alpha1.Volume, error) {
	if mirror == nil && volume.Status.Phase == storagev1alpha1.DPUVolumeBound {
		return nil, kube.WaitFor("Volume %s is not in DPU cluster %s any more, and a new one would be empty: bring it back there, or delete this volume",
			volume.Name, r.Clusters.DPUClusterName)
	}
	if mirror == nil {
		policy := client.ObjectKey{Namespace: volume.Namespace, Name: volume.Spec.DPUStoragePolicyName}
		found, err := kube.Find(ctx, r.Clusters.Host.Client, policy, &storagev1alpha1.DPUStoragePolicy{})
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, kube.WaitFor("DPUStoragePolicy %s does not exist in namespace %s: create it, or correct the parameter policy of the StorageClass",
				policy.Name, policy.Namespace)
		}
		mirror = mirrorOf(volume, r.Clusters)
		if _, err := kube.Create(ctx, r.Clusters.DPU.Client, mirror); err != nil {
			return nil, err
		}
	}
	if !hostcluster.OwnedBy(mirror, volume) {
		if err := r.adopt(ctx, volume, mirror); err != nil {
			return nil, err
		}
	}
	if !mirror.DeletionTimestamp.IsZero() {
		return nil, kube.WaitFor("Volume %s in DPU cluster %s is being deleted", mirror.Name, r.Clusters.DPUClusterName)
	}
	if want := sourceOf(volume); !equality.Semantic.DeepEqual(mirror.Spec.Request.Source, want) {
		return nil, kube.WaitFor("Volume %s in DPU cluster %s does not begin as the copy that is asked for: apply crds/dpu there, delete this volume, and ask again",
			mirror.Name, r.Clusters.DPUClusterName)
	}
	if !equality.Semantic.DeepEqual(mirror.Spec.Request.AccessibleFrom, r.Clusters.Wanted(volume.Spec.AccessibleFrom)) {
		return nil, kube.WaitFor("Volume %s in DPU cluster %s does not say from where it is to be reached: apply crds/dpu there, delete this volume, and ask again",
			mirror.Name, r.Clusters.DPUClusterName)
	}
	return mirror, r.follow(ctx, volume, mirror)
}

// remove deletes the Volume once it is attached nowhere, then lets the DPUVolume
// go. It says when to look again at what no watch tells of; 0: never.
func (r *Reconciler) remove(ctx context.Context, volume *storagev1alpha1.DPUVolume) (time.Duration, error) {
	var attachments storagev1alpha1.DPUVolumeAttachmentList
	err := r.Clusters.Host.Client.List(ctx, &attachments, client.InNamespace(volume.Namespace), client.MatchingFields{index.DPUVolumeAttachmentByVolume: volume.Name})
	if err != nil {
		return 0, fmt.Errorf("list the attachments of volume %s: %w", volume.Name, err)
	}
	if len(attachments.Items) > 0 {
		var names []string
		for i := range attachments.Items {
			names = append(names, attachments.Items[i].Name)
		}
		return 0, r.awaitDeletion(ctx, volume, "volume is attached: "+strings.Join(names, ", "))
	}
	mirror := &storagev1alpha1.Volume{}
	found, err := r.Clusters.OwnMirror(ctx, volume, mirror)
	if err != nil {
		return 0, err
	}
	if !found {
		held, err := r.removeClaim(ctx, volume.Name)
		if err != nil {
			return 0, err
		}
		if held != "" {
			return claimAgain, r.awaitDeletion(ctx, volume, held)
		}
		return 0, r.letGo(ctx, volume)
	}
	if err := kube.Delete(ctx, r.Clusters.DPU.Client, mirror); err != nil {
		return 0, err
	}
	abandoned, err := r.takeBack(ctx, volume.Name)
	if err != nil {
		return 0, err
	}
	if abandoned != "" {
		return claimAgain, r.awaitDeletion(ctx, volume, abandoned)
	}
	return 0, r.awaitDeletion(ctx, volume, cmp.Or(mirror.Status.Message, "waiting for the vendor's volume to be removed"))
}

// letGo takes off the finalizers: that of this DPU cluster, and that of one DPU cluster, with which
// snap-csi-plugin makes volumes.
func (r *Reconciler) letGo(ctx context.Context, v *storagev1alpha1.DPUVolume) error {
	return kube.RemoveFinalizers(ctx, r.Clusters.Host.Client, v, storagev1alpha1.FinalizerDPUVolume, r.Clusters.Finalizer(storagev1alpha1.FinalizerDPUVolume))
}

// takeBack ends the VolumeAttachments of a volume whose DPUVolumeAttachments were taken away
// by force, and says what is waited for; "" if there are none.
func (r *Reconciler) takeBack(ctx context.Context, volume string) (string, error) {
	var attachments storagev1alpha1.VolumeAttachmentList
	err := r.Clusters.DPU.Client.List(ctx, &attachments, client.InNamespace(r.Clusters.TargetNamespace), client.MatchingFields{index.VolumeAttachmentByVolume: volume})
	if err != nil {
		return "", fmt.Errorf("list the VolumeAttachments of volume %s: %w", volume, err)
	}
	var waits []string
	for i := range attachments.Items {
		a := &attachments.Items[i]
		silent := r.Silent != nil && r.Silent(a.Spec.NodeName)
		wait, err := r.Clusters.TakeBack(ctx, a, silent, r.clock().Now())
		if err != nil {
			return "", err
		}
		if wait != "" {
			waits = append(waits, wait)
		}
	}
	return strings.Join(waits, "; "), nil
}

func (r *Reconciler) awaitDeletion(ctx context.Context, volume *storagev1alpha1.DPUVolume, message string) error {
	_, err := kube.PatchStatus(ctx, r.Clusters.Host.Client, volume, func(v *storagev1alpha1.DPUVolume) {
		conditions := kube.Conditions{List: &v.Status.Conditions, Generation: v.Generation}
		conditions.False(storagev1alpha1.ConditionDPUVolumeReconciled, storagev1alpha1.ReasonAwaitingDeletion, message)
		conditions.Summarize(storagev1alpha1.ConditionReady, storagev1alpha1.ConditionDPUVolumeReconciled)
	})
	return kube.IgnoreNotFound(err)
}

func ofAttachment(_ context.Context, o client.Object) []reconcile.Request {
	name := o.(*storagev1alpha1.DPUVolumeAttachment).Spec.DPUVolumeName
	return []reconcile.Request{kube.RequestFor(o.GetNamespace(), name)}
}

func (r *Reconciler) ofPolicy(ctx context.Context, o client.Object) []reconcile.Request {
	var volumes storagev1alpha1.DPUVolumeList
	err := r.Clusters.Host.Client.List(ctx, &volumes, client.InNamespace(o.GetNamespace()), client.MatchingFields{index.DPUVolumeByPolicy: o.GetName()})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the volumes of a policy", "policy", o.GetName())
	}
	return kube.Requests(slices.DeleteFunc(volumes.Items, func(v storagev1alpha1.DPUVolume) bool {
		return v.Status.Phase == storagev1alpha1.DPUVolumeBound
	}))
}
