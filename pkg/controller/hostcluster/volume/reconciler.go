// Package volume carries a DPUVolume to the DPU cluster as a Volume, and what
// was made there back into its status.
package volume

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
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
}

// SetupWithManager watches volumes, attachments and policies here, and
// Volumes there.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("dpuvolume").
		For(&storagev1alpha1.DPUVolume{}).
		Watches(&storagev1alpha1.DPUVolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(ofAttachment)).
		Watches(&storagev1alpha1.DPUStoragePolicy{}, handler.EnqueueRequestsFromMapFunc(r.ofPolicy)).
		WatchesRawSource(source.Kind(r.Clusters.DPU.Cache, &storagev1alpha1.Volume{},
			hostcluster.ToOwner[*storagev1alpha1.Volume](storagev1alpha1.AnnotationOwnedByDPUVolume))).
		Complete(kube.Retrying(r))
}

// Reconcile brings the Volume and the DPUVolume's status up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	volume := &storagev1alpha1.DPUVolume{}
	found, err := kube.Find(ctx, r.Clusters.Host.Client, req.NamespacedName, volume)
	if err != nil || !found {
		return ctrl.Result{}, err
	}
	if !volume.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.remove(ctx, volume)
	}
	mirror := &storagev1alpha1.Volume{}
	found, err = kube.Find(ctx, r.Clusters.DPU.Client, r.Clusters.Target(volume.Name), mirror)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !found {
		mirror = nil
	}
	if _, err := kube.AddFinalizer(ctx, r.Clusters.Host.Client, volume, storagev1alpha1.FinalizerDPUVolume); err != nil {
		return ctrl.Result{}, err
	}
	seen, err := r.carry(ctx, volume, mirror)
	if err != nil {
		seen.failure = err
	}
	if _, statusErr := kube.PatchStatus(ctx, r.Clusters.Host.Client, volume, func(v *storagev1alpha1.DPUVolume) {
		report(v, seen, r.Clusters)
	}); statusErr != nil {
		return ctrl.Result{}, statusErr
	}
	return ctrl.Result{}, err
}

// carry makes the Volume if it is not there, lets it ask for what the DPUVolume
// asks for now, and tells what is seen of it.
func (r *Reconciler) carry(ctx context.Context, volume *storagev1alpha1.DPUVolume, mirror *storagev1alpha1.Volume) (seen, error) {
	if mirror == nil {
		policy := client.ObjectKey{Namespace: volume.Namespace, Name: volume.Spec.DPUStoragePolicyName}
		found, err := kube.Find(ctx, r.Clusters.Host.Client, policy, &storagev1alpha1.DPUStoragePolicy{})
		if err != nil {
			return seen{}, err
		}
		if !found {
			return seen{waiting: fmt.Sprintf("DPUStoragePolicy %s does not exist in namespace %s: create it, or correct the parameter policy of the StorageClass",
				policy.Name, policy.Namespace)}, nil
		}
		mirror = mirrorOf(volume, r.Clusters)
		if _, err := kube.Create(ctx, r.Clusters.DPU.Client, mirror); err != nil {
			return seen{}, err
		}
	}
	switch {
	case !hostcluster.OwnedBy(mirror, volume):
		return seen{waiting: fmt.Sprintf("a Volume %s of an earlier DPUVolume of this name is still in DPU cluster %s; it has to go first",
			mirror.Name, r.Clusters.DPUClusterName)}, nil
	case !mirror.DeletionTimestamp.IsZero():
		return seen{waiting: fmt.Sprintf("Volume %s in DPU cluster %s is being deleted", mirror.Name, r.Clusters.DPUClusterName)}, nil
	}
	if want := sourceOf(volume); !equality.Semantic.DeepEqual(mirror.Spec.Request.Source, want) {
		return seen{waiting: fmt.Sprintf("Volume %s in DPU cluster %s does not begin as the copy that is asked for: apply crds/dpu there, delete this volume, and ask again",
			mirror.Name, r.Clusters.DPUClusterName)}, nil
	}
	if !equality.Semantic.DeepEqual(mirror.Spec.Request.AccessibleFrom, volume.Spec.AccessibleFrom) {
		return seen{waiting: fmt.Sprintf("Volume %s in DPU cluster %s does not say from where it is to be reached: apply crds/dpu there, delete this volume, and ask again",
			mirror.Name, r.Clusters.DPUClusterName)}, nil
	}
	return seen{mirror: mirror}, r.follow(ctx, volume, mirror)
}

// remove deletes the Volume once nobody is attached, then lets the DPUVolume
// go.
func (r *Reconciler) remove(ctx context.Context, volume *storagev1alpha1.DPUVolume) error {
	var attachments storagev1alpha1.DPUVolumeAttachmentList
	err := r.Clusters.Host.Client.List(ctx, &attachments, client.InNamespace(volume.Namespace), client.MatchingFields{index.DPUVolumeAttachmentByVolume: volume.Name})
	if err != nil {
		return fmt.Errorf("list the attachments of volume %s: %w", volume.Name, err)
	}
	if len(attachments.Items) > 0 {
		var names []string
		for i := range attachments.Items {
			names = append(names, attachments.Items[i].Name)
		}
		return r.awaitDeletion(ctx, volume, "volume is attached: "+strings.Join(names, ", "))
	}
	mirror := &storagev1alpha1.Volume{}
	found, err := r.Clusters.OwnMirror(ctx, volume, mirror)
	if err != nil {
		return err
	}
	if !found {
		return kube.RemoveFinalizers(ctx, r.Clusters.Host.Client, volume, storagev1alpha1.FinalizerDPUVolume)
	}
	if err := kube.Delete(ctx, r.Clusters.DPU.Client, mirror); err != nil {
		return err
	}
	words := "waiting for the vendor's volume to be removed"
	if mirror.Status.Message != "" {
		words = mirror.Status.Message
	}
	return r.awaitDeletion(ctx, volume, words)
}

func (r *Reconciler) awaitDeletion(ctx context.Context, volume *storagev1alpha1.DPUVolume, words string) error {
	_, err := kube.PatchStatus(ctx, r.Clusters.Host.Client, volume, func(v *storagev1alpha1.DPUVolume) {
		conditions := kube.Conditions{List: &v.Status.Conditions, Generation: v.Generation}
		conditions.False(storagev1alpha1.ConditionDPUVolumeReconciled, storagev1alpha1.ReasonAwaitingDeletion, words)
		conditions.Summarize(storagev1alpha1.ConditionReady, storagev1alpha1.ConditionDPUVolumeReconciled)
	})
	return client.IgnoreNotFound(err)
}

func ofAttachment(_ context.Context, o client.Object) []reconcile.Request {
	name := o.(*storagev1alpha1.DPUVolumeAttachment).Spec.DPUVolumeName
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: name}}}
}

func (r *Reconciler) ofPolicy(ctx context.Context, o client.Object) []reconcile.Request {
	var volumes storagev1alpha1.DPUVolumeList
	err := r.Clusters.Host.Client.List(ctx, &volumes, client.InNamespace(o.GetNamespace()), client.MatchingFields{index.DPUVolumeByPolicy: o.GetName()})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the volumes of a policy", "policy", o.GetName())
	}
	var out []reconcile.Request
	for i := range volumes.Items {
		if volumes.Items[i].Status.Phase != storagev1alpha1.DPUVolumeBound {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&volumes.Items[i])})
		}
	}
	return out
}
