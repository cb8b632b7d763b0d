package attachment

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// What another object tells wakes an attachment only if a pass depends on it: hosts
// send a heartbeat every few seconds, and have many attachments. An attachment and
// its VolumeAttachment wake it by every change, also by those of its own passes: a
// pass that read an old status may have written nothing where it should have.
var (
	// volumeChanged: findVolume and pass.single depend on it; and writerClaim, as a volume that DPF made
	// is reconciled once it is taken over.
	volumeChanged = changed(func(v *storagev1alpha1.DPUVolume) any {
		return []any{v.DeletionTimestamp.IsZero(), v.Status.Phase, v.Spec.AccessModes, meta.IsStatusConditionTrue(v.Status.Conditions, storagev1alpha1.ConditionDPUVolumeReconciled)}
	})
	// dpuChanged: findDPU depends on it.
	dpuChanged = changed(func(n *moorv1alpha1.DPUStorageNode) any { return n.Spec.DPUName })
	// toldChanged: reportMount and reportPath depend on it.
	toldChanged = changed(func(n *moorv1alpha1.DPUStorageNode) any { return []any{n.Status.DeadMounts(), n.Status.LostPaths()} })
	// claimChanged: writer.Judge and promotedEarly depend on it.
	claimChanged = predicate.TypedFuncs[*moorv1alpha1.WriterClaim]{
		UpdateFunc: func(e event.TypedUpdateEvent[*moorv1alpha1.WriterClaim]) bool {
			return !equality.Semantic.DeepEqual(rightOf(e.ObjectOld), rightOf(e.ObjectNew))
		},
	}
	// userChanged: Users.find depends on it.
	userChanged = predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return len(podvolume.ClaimsInUse(e.Object.(*corev1.Pod))) > 0 },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, now := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			return len(podvolume.ClaimsInUse(before)) != len(podvolume.ClaimsInUse(now)) || before.DeletionTimestamp.IsZero() != now.DeletionTimestamp.IsZero() && len(podvolume.ClaimsInUse(now)) > 0
		},
		DeleteFunc: func(e event.DeleteEvent) bool { return len(podvolume.Claims(e.Object.(*corev1.Pod))) > 0 },
	}
	// bindingChanged: Users.find depends on it.
	bindingChanged = changed(func(pv *corev1.PersistentVolume) any { return []any{pv.Status.Phase, podvolume.BoundTo(pv)} })
	// serviceChanged: Users.outOfService depends on it. A Node that comes is followed
	// by its pods.
	serviceChanged = predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: changed(func(n *corev1.Node) any { return takenOutOfService(n) }).UpdateFunc,
	}
)

// changed lets pass what comes and goes, and updates after which fact differs.
func changed[T client.Object](fact func(T) any) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(fact(e.ObjectOld.(T)), fact(e.ObjectNew.(T)))
	}}
}

// rightOf is what a claim says of the right to write.
func rightOf(c *moorv1alpha1.WriterClaim) any {
	if c.Status == nil {
		return nil
	}
	return []any{c.Status.Phase, c.Status.Holder, c.Status.Attachment, c.Status.AttachmentUID, c.Status.Epoch, len(c.Status.Lost)}
}

func (r *Reconciler) ofVolume(ctx context.Context, o client.Object) []reconcile.Request {
	return r.by(ctx, index.DPUVolumeAttachmentByVolume, o.GetName())
}

func (r *Reconciler) ofNode(ctx context.Context, o client.Object) []reconcile.Request {
	return r.by(ctx, index.DPUVolumeAttachmentByNode, o.GetName())
}

// ofTold maps to the attachments of the volumes whose mounts a host calls dead, and of those
// whose way to the storage its DPU calls lost. It is asked of a host as it was and as it is.
func (r *Reconciler) ofTold(ctx context.Context, o client.Object) []reconcile.Request {
	told := &o.(*moorv1alpha1.DPUStorageNode).Status
	dead := told.DeadMounts()
	if len(dead) == 0 && len(told.LostPaths()) == 0 {
		return nil
	}
	return kube.Requests(slices.DeleteFunc(r.list(ctx, index.DPUVolumeAttachmentByNode, o.GetName()), func(a storagev1alpha1.DPUVolumeAttachment) bool {
		return deadMountOf(dead, a.Spec.DPUVolumeName) == nil && told.LostPath(a.Spec.DPUVolumeName) == nil
	}))
}

// ofHost maps to the attachments of a DPUStorageNode, and of all others that name its DPU:
// while several do, theirs wait.
func (r *Reconciler) ofHost(ctx context.Context, o client.Object) []reconcile.Request {
	out, dpu := r.ofNode(ctx, o), o.(*moorv1alpha1.DPUStorageNode).Spec.DPUName
	if dpu == "" {
		return out
	}
	named := client.MatchingFields{index.DPUStorageNodeByDPU: dpu}
	for _, other := range kube.RequestsOf(ctx, r.Clusters.Host.Client, &moorv1alpha1.DPUStorageNodeList{}, named) {
		if other.Name != o.GetName() {
			out = append(out, r.by(ctx, index.DPUVolumeAttachmentByNode, other.Name)...)
		}
	}
	return out
}

// ofClaim maps to every attachment of the claim's volume: one may be waiting
// for the right to write.
func (r *Reconciler) ofClaim(ctx context.Context, o *moorv1alpha1.WriterClaim) []reconcile.Request {
	return r.by(ctx, index.DPUVolumeAttachmentByVolume, o.Spec.VolumeName)
}

// ofUser maps to the attachments of the pod's volumes to its node.
func (r *Reconciler) ofUser(ctx context.Context, o client.Object) []reconcile.Request {
	pod := o.(*corev1.Pod)
	volumes, err := r.Users.HandlesOf(ctx, pod)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "look for the volumes of a pod", "pod", client.ObjectKeyFromObject(pod))
	}
	var out []reconcile.Request
	for _, volume := range volumes {
		out = append(out, kube.Requests(slices.DeleteFunc(r.list(ctx, index.DPUVolumeAttachmentByVolume, volume), func(a storagev1alpha1.DPUVolumeAttachment) bool {
			return a.Spec.DPUNodeName != pod.Spec.NodeName
		}))...)
	}
	return out
}

// ofPersistent maps to the attachments of the volume behind a PersistentVolume.
func (r *Reconciler) ofPersistent(ctx context.Context, o client.Object) []reconcile.Request {
	return r.by(ctx, index.DPUVolumeAttachmentByVolume, podvolume.Handle(o.(*corev1.PersistentVolume)))
}

func (r *Reconciler) by(ctx context.Context, index, name string) []reconcile.Request {
	return kube.Requests(r.list(ctx, index, name))
}

func (r *Reconciler) list(ctx context.Context, index, name string) []storagev1alpha1.DPUVolumeAttachment {
	var list storagev1alpha1.DPUVolumeAttachmentList
	if err := r.Clusters.Host.Client.List(ctx, &list, client.InNamespace(r.Clusters.Namespace), client.MatchingFields{index: name}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list attachments", "index", index, "name", name)
	}
	return list.Items
}
