package replica

import (
	"context"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// SetupWithManager watches volumes and attachments, nodes and their DPUs where
// they change in what counts, and the coming and going of pods and
// PersistentVolumes.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	onNode := handler.EnqueueRequestsFromMapFunc(r.ofNode)
	return ctrl.NewControllerManagedBy(mgr).
		Named("replica").
		For(&storagev1alpha1.DPUVolume{}).
		Watches(&storagev1alpha1.DPUVolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(r.ofAttachment)).
		Watches(&moorv1alpha1.DPUStorageNode{}, onNode, builder.WithPredicates(predicate.Funcs{UpdateFunc: dpuChanged})).
		Watches(&corev1.Node{}, onNode, builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeChanged})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod), builder.WithPredicates(predicate.Funcs{UpdateFunc: podChanged})).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.ofPersistent), builder.WithPredicates(predicate.Funcs{UpdateFunc: persistentChanged})).
		Complete(kube.Retrying(r))
}

func dpuChanged(e event.UpdateEvent) bool {
	was, is := e.ObjectOld.(*moorv1alpha1.DPUStorageNode), e.ObjectNew.(*moorv1alpha1.DPUStorageNode)
	return !equality.Semantic.DeepEqual(was.Spec, is.Spec) || was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero() ||
		!equality.Semantic.DeepEqual(was.Status.Conditions, is.Status.Conditions) || !maps.Equal(was.Status.Topology, is.Status.Topology) || !reflect.DeepEqual(counts(was), counts(is))
}

// counts is what counts of the DPU's own report; its beat does not.
func counts(n *moorv1alpha1.DPUStorageNode) any {
	if n.Status.DPU == nil {
		return nil
	}
	return []any{n.Status.DPU.SNAPReady, n.Status.DPU.Functions}
}

func nodeChanged(e event.UpdateEvent) bool {
	was, is := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	return !equality.Semantic.DeepEqual(was.Spec, is.Spec) || !equality.Semantic.DeepEqual(was.Labels, is.Labels) || ready(was) != ready(is)
}

func ready(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

func podChanged(e event.UpdateEvent) bool {
	was, is := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
	return was.Status.Phase != is.Status.Phase || alive(was) != alive(is) || !maps.Equal(was.Labels, is.Labels)
}

func persistentChanged(e event.UpdateEvent) bool {
	return podvolume.BoundTo(e.ObjectOld.(*corev1.PersistentVolume)) != podvolume.BoundTo(e.ObjectNew.(*corev1.PersistentVolume))
}

func (r *Reconciler) request(volume string) reconcile.Request {
	return kube.RequestFor(r.Namespace, volume)
}

func (r *Reconciler) ofAttachment(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{r.request(o.(*storagev1alpha1.DPUVolumeAttachment).Spec.DPUVolumeName)}
}

// ofNode wakes the volumes that have an attachment on the node, and those that
// miss replicas: it may have become good enough.
func (r *Reconciler) ofNode(ctx context.Context, o client.Object) []reconcile.Request {
	var there storagev1alpha1.DPUVolumeAttachmentList
	var short storagev1alpha1.DPUVolumeList
	if err := r.Host.Client.List(ctx, &there, client.InNamespace(r.Namespace), client.MatchingFields{index.DPUVolumeAttachmentByNode: o.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the attachments of a node", "node", o.GetName())
	}
	if err := r.Host.Client.List(ctx, &short, client.InNamespace(r.Namespace), client.MatchingFields{index.DPUVolumeMissingReplicas: "true"}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the volumes that miss replicas")
	}
	var out []reconcile.Request
	for i := range there.Items {
		out = append(out, r.request(there.Items[i].Spec.DPUVolumeName))
	}
	for i := range short.Items {
		out = append(out, r.request(short.Items[i].Name))
	}
	return out
}

// ofPod wakes the volumes of the pod, and those of pods that must be near to
// it, or must not.
func (r *Reconciler) ofPod(ctx context.Context, o client.Object) []reconcile.Request {
	pod := o.(*corev1.Pod)
	concerned, err := r.concernedBy(ctx, pod)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "find the pods that a pod concerns", "pod", client.ObjectKeyFromObject(o))
	}
	var out []reconcile.Request
	for _, p := range append(concerned, pod) {
		for _, claim := range podvolume.Claims(p) {
			handles, err := r.users().Handles(ctx, claim)
			if err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "find the volumes of a pod", "pod", client.ObjectKeyFromObject(p))
			}
			for _, h := range handles {
				out = append(out, r.request(h))
			}
		}
	}
	return out
}

func (r *Reconciler) ofPersistent(_ context.Context, o client.Object) []reconcile.Request {
	if handle := podvolume.HandleOf(r.Driver, o.(*corev1.PersistentVolume)); handle != "" {
		return []reconcile.Request{r.request(handle)}
	}
	return nil
}
