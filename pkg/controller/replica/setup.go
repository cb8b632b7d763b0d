package replica

import (
	"context"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
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
	"github.com/moor-storage/moor/pkg/placement"
)

// SetupWithManager watches volumes and attachments, nodes and their DPUs where
// they change in what counts, and the coming and going of pods and
// PersistentVolumes. What is there at the start wakes nothing but the volumes
// themselves, each of which looks at all of that.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("replica").
		For(&storagev1alpha1.DPUVolume{}).
		Watches(&storagev1alpha1.DPUVolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(r.ofAttachment)).
		Watches(&moorv1alpha1.DPUStorageNode{}, r.onNode(dpuBetter), builder.WithPredicates(predicate.Funcs{CreateFunc: isNew, UpdateFunc: dpuChanged})).
		Watches(&corev1.Node{}, r.onNode(nodeBetter), builder.WithPredicates(predicate.Funcs{CreateFunc: isNew, UpdateFunc: nodeChanged})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod), builder.WithPredicates(predicate.Funcs{CreateFunc: isNew, UpdateFunc: podChanged})).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.ofPersistent), builder.WithPredicates(predicate.Funcs{UpdateFunc: persistentChanged})).
		Complete(kube.Retrying(r))
}

// isNew passes what was not there at the start.
func isNew(e event.CreateEvent) bool { return !e.IsInInitialList }

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
	return []any{n.Status.DPU.SNAPReady, n.Status.DPU.Functions, lostVolumes(n), n.Status.DPU.AllPathsLost}
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

// onNode wakes the volumes that have an attachment on a node that changed, and those that
// miss replicas if it may have become good enough for one. These may be many, and each
// looks at all nodes: so they go last.
func (r *Reconciler) onNode(better func(event.UpdateEvent) bool) handler.Funcs {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			r.wakeAttached(ctx, e.Object.GetName(), q)
			kube.AddLast(q, r.short(ctx)...)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			r.wakeAttached(ctx, e.ObjectNew.GetName(), q)
			if better(e) {
				kube.AddLast(q, r.short(ctx)...)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { r.wakeAttached(ctx, e.Object.GetName(), q) },
	}
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// wakeAttached wakes the volumes that have an attachment on a node.
func (r *Reconciler) wakeAttached(ctx context.Context, node string, q queue) {
	var there storagev1alpha1.DPUVolumeAttachmentList
	of := client.MatchingFields{index.DPUVolumeAttachmentByNode: node}
	if err := r.Host.Client.List(ctx, &there, client.InNamespace(r.Namespace), of, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the attachments of a node", "node", node)
	}
	for i := range there.Items {
		q.Add(r.request(there.Items[i].Spec.DPUVolumeName))
	}
}

// short are the volumes that miss replicas.
func (r *Reconciler) short(ctx context.Context) []reconcile.Request {
	return kube.RequestsOf(ctx, r.Host.Client, &storagev1alpha1.DPUVolumeList{},
		client.InNamespace(r.Namespace), client.MatchingFields{index.DPUVolumeMissingReplicas: "true"})
}

// dpuBetter reports whether a node may have become good enough for a replica by its DPU:
// nothing speaks against it now, and something did, or it has more functions that are
// free, or a path that was lost, or is another.
func dpuBetter(e event.UpdateEvent) bool {
	was, is := e.ObjectOld.(*moorv1alpha1.DPUStorageNode), e.ObjectNew.(*moorv1alpha1.DPUStorageNode)
	if len(ofDPU(is)) > 0 {
		return false
	}
	return len(ofDPU(was)) > 0 || regained(was, is) || !equality.Semantic.DeepEqual(was.Spec, is.Spec) || !maps.Equal(was.Status.Topology, is.Status.Topology) ||
		more(was.Status.DPU.Functions, is.Status.DPU.Functions)
}

// more reports whether there are more free functions of a kind, or of a kind that is not
// counted any more.
func more(was, are []moorv1alpha1.FunctionCount) bool {
	had, has := placement.UnknownFree(), placement.UnknownFree()
	count(&had, was)
	count(&has, are)
	for kind, free := range has {
		if had[kind] != placement.Unknown && (free > had[kind] || free == placement.Unknown) {
			return true
		}
	}
	return false
}

// nodeBetter reports the same by its Node: by what speaks against it, and by what pods
// select nodes and tolerate.
func nodeBetter(e event.UpdateEvent) bool {
	was, is := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	if len(ofKubelet(is)) > 0 {
		return false
	}
	return len(ofKubelet(was)) > 0 || !maps.Equal(was.Labels, is.Labels) || !equality.Semantic.DeepEqual(was.Spec, is.Spec)
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
	if handle := podvolume.HandleOf(o.(*corev1.PersistentVolume), r.Driver); handle != "" {
		return []reconcile.Request{r.request(handle)}
	}
	return nil
}
