package events

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
)

// ProvisioningReconciler repeats one Event of the DPU cluster about a vendor's
// PersistentVolumeClaim on the DPUVolume that it is made for: users have no access
// to the DPU cluster.
type ProvisioningReconciler struct {
	Clusters hostcluster.Clusters
}

// SetupWithManager watches the Events about claims in the target namespace.
func (r *ProvisioningReconciler) SetupWithManager(mgr ctrl.Manager) error {
	events := handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, e *corev1.Event) []reconcile.Request {
		if e.InvolvedObject.Kind != "PersistentVolumeClaim" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(e)}}
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("dpuclusterevent").
		WatchesRawSource(source.Kind(r.Clusters.DPU.Cache, &corev1.Event{}, events)).
		Complete(kube.Retrying(r))
}

// Reconcile repeats the event on the DPUVolume that owns the claim.
func (r *ProvisioningReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	event := &corev1.Event{}
	found, err := kube.Find(ctx, r.Clusters.DPU.Client, req.NamespacedName, event)
	if err != nil || !found {
		return ctrl.Result{}, err
	}
	claim := event.InvolvedObject.Name
	volume := &storagev1alpha1.DPUVolume{}
	key := client.ObjectKey{Namespace: r.Clusters.Namespace, Name: strings.TrimSuffix(claim, "-pvc")}
	found, err = kube.Find(ctx, r.Clusters.Host.Client, key, volume)
	if err != nil || !found || volume.Status.Phase == storagev1alpha1.DPUVolumeBound {
		return ctrl.Result{}, err
	}
	about := corev1.ObjectReference{
		APIVersion: storagev1alpha1.GroupVersion.String(), Kind: "DPUVolume", Namespace: volume.Namespace, Name: volume.Name, UID: volume.UID,
	}
	message := fmt.Sprintf("vendor claim %s in DPU cluster %s: %s", claim, r.Clusters.DPUClusterName, event.Message)
	out, told := copyOf(event, about, message), &corev1.Event{}
	found, err = kube.Find(ctx, r.Clusters.Host.Client, client.ObjectKeyFromObject(out), told)
	if err != nil || found && same(told, out) {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, mirror(ctx, r.Clusters.Host.Client, out)
}
