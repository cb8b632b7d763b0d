package wake

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// The field indexes.
const (
	indexClaim = "claims of a starting pod"
	indexBound = "spec.claimRef"
	indexPlace = "node and volume"
)

// Index registers the field indexes that the reconciler reads by.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range []struct {
		of    client.Object
		field string
		value func(client.Object) []string
	}{
		{&corev1.Pod{}, indexClaim, claims},
		{&corev1.PersistentVolume{}, indexBound, func(o client.Object) []string { return []string{podvolume.BoundTo(o.(*corev1.PersistentVolume))} }},
		{&storagev1alpha1.DPUVolumeAttachment{}, indexPlace, func(o client.Object) []string {
			spec := o.(*storagev1alpha1.DPUVolumeAttachment).Spec
			return []string{place(spec.DPUNodeName, spec.DPUVolumeName)}
		}},
	} {
		if err := indexer.IndexField(ctx, i.of, i.field, i.value); err != nil {
			return fmt.Errorf("index %T by %s: %w", i.of, i.field, err)
		}
	}
	return nil
}

// claims are those of a pod that is starting, the only ones that matter.
func claims(o client.Object) []string {
	pod := o.(*corev1.Pod)
	if !starting(pod) {
		return nil
	}
	return podvolume.Claims(pod)
}

func place(node, volume string) string { return node + " " + volume }

// SetupWithManager watches pods from when they are bound to a node until they
// run, and PersistentVolumes as they become bound. Nothing has to watch the
// attachments: the reconciler looks when the time is over.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("wake").
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return len(claims(e.Object)) > 0 },
			UpdateFunc: func(e event.UpdateEvent) bool { return len(claims(e.ObjectOld)) != len(claims(e.ObjectNew)) },
		})).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.ofPersistent), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool {
				return e.ObjectOld.(*corev1.PersistentVolume).Status.Phase != e.ObjectNew.(*corev1.PersistentVolume).Status.Phase
			},
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		Complete(kube.Retrying(r))
}

// ofPersistent wakes the pods that wait for the volume.
func (r *Reconciler) ofPersistent(ctx context.Context, o client.Object) []reconcile.Request {
	pv := o.(*corev1.PersistentVolume)
	if podvolume.HandleOf(r.Driver, pv) == "" {
		return nil
	}
	var pods corev1.PodList
	if err := r.Host.List(ctx, &pods, client.MatchingFields{indexClaim: podvolume.BoundTo(pv)}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the pods on a claim", "claim", podvolume.BoundTo(pv))
	}
	out := make([]reconcile.Request, len(pods.Items))
	for i := range pods.Items {
		out[i].NamespacedName = client.ObjectKeyFromObject(&pods.Items[i])
	}
	return out
}
