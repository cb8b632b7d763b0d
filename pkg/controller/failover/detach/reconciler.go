// Package detach ends the right to write of an attachment in order: it frees the
// WriterClaim once the DPU has released the attachment, and lets the attachment go.
package detach

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/writer"
)

// retryAfter is when an attachment is looked at again that a failover keeps.
const retryAfter = 5 * time.Second

// failoverFirst is how long a claim that is being fenced is left to the failover of the
// host, which then frees it by the same receipt: two who do it read everything twice.
const failoverFirst = 30 * time.Second

// Reconciler looks at VolumeAttachments of the DPU cluster.
type Reconciler struct {
	// DPU is the DPU cluster; its cache serves only to skip work.
	DPU kube.Cluster
	// Host is the host cluster. Its Live tells an attachment that a failover
	// ended from one that its user did; nil if there are no failovers.
	Host  kube.Cluster
	Clock clock.PassiveClock
	// Heartbeats tell whether a DPU is silent. Nil: each is waited for.
	Heartbeats *nodehealth.Observer
	// TargetNamespace of the VolumeAttachments.
	TargetNamespace string
	// Recorder is for the event that a fence ended in order. Nil: no events.
	Recorder record.EventRecorder
}

// SetupWithManager watches the VolumeAttachments of the DPU cluster, what becomes of the
// claims that are held for them, and their owners that go.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("fence").
		Watches(&storagev1alpha1.DPUVolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(r.ofOwner), builder.WithPredicates(Going)).
		WatchesRawSource(source.Kind(r.DPU.Cache, &storagev1alpha1.VolumeAttachment{},
			&handler.TypedEnqueueRequestForObject[*storagev1alpha1.VolumeAttachment]{})).
		WatchesRawSource(source.Kind(r.DPU.Cache, &moorv1alpha1.WriterClaim{}, handler.TypedEnqueueRequestsFromMapFunc(OfClaim), claimChanged)).
		Complete(kube.Retrying(r))
}

// claimChanged passes claims that say something else of the right to write, and those that go.
var claimChanged = predicate.TypedFuncs[*moorv1alpha1.WriterClaim]{
	CreateFunc: func(event.TypedCreateEvent[*moorv1alpha1.WriterClaim]) bool { return false },
	UpdateFunc: func(e event.TypedUpdateEvent[*moorv1alpha1.WriterClaim]) bool {
		return !equality.Semantic.DeepEqual(e.ObjectOld.Status, e.ObjectNew.Status)
	},
}

// OfClaim maps to the VolumeAttachments for which the claim is held, or may be.
func OfClaim(_ context.Context, claim *moorv1alpha1.WriterClaim) []reconcile.Request {
	if claim.Status == nil {
		return nil
	}
	var out []reconcile.Request
	if a := claim.Status.Attachment; a != "" {
		out = append(out, kube.RequestFor(claim.Namespace, a))
	}
	for _, h := range claim.Status.Lost {
		out = append(out, kube.RequestFor(claim.Namespace, h.Attachment))
	}
	return out
}

// ofOwner maps to the VolumeAttachment of an owner: it has the same name.
func (r *Reconciler) ofOwner(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{kube.RequestFor(r.TargetNamespace, o.GetName())}
}

// Reconcile frees the claim of an attachment that is being deleted, once
// there is a receipt, and lets the attachment go, in the end without its DPU.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	attachment := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, r.DPU.Client, req.NamespacedName, attachment)
	switch {
	case err != nil || !found:
		return ctrl.Result{}, err
	case writer.Surrenders(attachment):
		return ctrl.Result{}, r.acceptSurrender(ctx, attachment)
	case !concerns(attachment):
		return ctrl.Result{}, nil
	case !writer.Detaching(attachment) && !r.silent(attachment): // so nothing is read live
		return r.lookAtSilence()
	}
	return r.end(ctx, attachment)
}

// end ends an attachment that is being deleted, or whose DPU did not let go.
func (r *Reconciler) end(ctx context.Context, attachment *storagev1alpha1.VolumeAttachment) (ctrl.Result, error) {
	if again, idle, err := r.idle(ctx, attachment); err != nil || idle {
		return again, err
	}
	// The claim first: it is freed by compare-and-swap, so what is read of
	// the attachment afterwards is newer than the claim that is written over.
	// The other way round, one who paused in between could free the claim of a
	// newer attachment of the same name.
	claim, err := writerClaim(ctx, r.DPU.Live, attachment)
	if err != nil {
		return ctrl.Result{}, err
	}
	uid := attachment.UID
	found, err := kube.Find(ctx, r.DPU.Live, client.ObjectKeyFromObject(attachment), attachment)
	if err != nil || !found || attachment.UID != uid || !concerns(attachment) {
		return ctrl.Result{}, err
	}
	if !writer.Detaching(attachment) {
		return r.leave(ctx, attachment, claim)
	}
	return r.detach(ctx, attachment, claim)
}

// idle reports whether, as far as the caches know, there is nothing to be done about an
// attachment now, and when to look again. Each change of one that goes starts a pass; were
// all to read live, the volumes of a dead host would be read again and again.
func (r *Reconciler) idle(ctx context.Context, a *storagev1alpha1.VolumeAttachment) (ctrl.Result, bool, error) {
	if r.silent(a) {
		return ctrl.Result{}, false, nil
	}
	claim, err := writerClaim(ctx, r.DPU.Client, a)
	if err != nil {
		return ctrl.Result{}, false, err
	}
	if writer.Recover(claim, a, r.Clock.Now()) != nil {
		return ctrl.Result{}, false, nil
	}
	step, _ := writer.Detach(a, claim)
	if step == writer.Wait {
		again, err := r.lookAtSilence()
		return again, true, err
	}
	if wait := writer.Early(a, r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, true, nil
	}
	fenced := writer.InFencing(claim, writer.HolderOf(a)) && r.Clock.Since(a.DeletionTimestamp.Time) < failoverFirst
	if step == writer.FreeClaim && !fenced || r.Host.Client == nil {
		return ctrl.Result{}, false, nil
	}
	kept, err := keep(ctx, r.Host.Client, a)
	return ctrl.Result{RequeueAfter: retryAfter}, kept, err
}

// detach frees the claim and lets the attachment go, as what the DPU has said allows it.
func (r *Reconciler) detach(ctx context.Context, attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) (ctrl.Result, error) {
	if after := writer.Recover(claim, attachment, r.Clock.Now()); after != nil {
		if err := r.DPU.Client.Status().Update(ctx, after); err != nil {
			return ctrl.Result{}, fmt.Errorf("record that DPU %s has withdrawn volume %s, of which the claim was lost: %w", attachment.Spec.NodeName, claim.Name, err)
		}
		claim = after
	}
	step, receipt := writer.Detach(attachment, claim)
	if step == writer.Wait {
		return r.leave(ctx, attachment, claim)
	}
	if wait := writer.Early(attachment, r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if step == writer.FreeClaim {
		if err := r.free(ctx, attachment, claim, receipt); err != nil {
			return ctrl.Result{}, err
		}
	}
	if kept, err := keep(ctx, r.Host.Live, attachment); err != nil || kept {
		return ctrl.Result{RequeueAfter: retryAfter}, err
	}
	return ctrl.Result{}, r.letGo(ctx, attachment)
}

// free frees the claim by a receipt, and records it on the volume if that was being fenced.
func (r *Reconciler) free(ctx context.Context, attachment *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim, receipt moorv1alpha1.Receipt) error {
	if _, err := Free(ctx, r.DPU.Client, claim, receipt, r.Clock.Now()); err != nil {
		return err
	}
	if writer.InFencing(claim, writer.HolderOf(attachment)) {
		r.recordFenced(ctx, attachment, receipt)
	}
	return nil
}

// letGo takes the finalizer off an attachment as it was read. Others write to one that
// goes, which makes the removal fail: then it is read again, and what was decided has to
// hold still.
func (r *Reconciler) letGo(ctx context.Context, attachment *storagev1alpha1.VolumeAttachment) error {
	if !writer.Released(attachment, nil) {
		return nil
	}
	uid := attachment.UID
	err := kube.RemoveFinalizers(ctx, r.DPU.Client, attachment, storagev1alpha1.FinalizerWriterClaim)
	if !apierrors.IsConflict(err) {
		return err
	}
	found, err := kube.Find(ctx, r.DPU.Live, client.ObjectKeyFromObject(attachment), attachment)
	if err != nil || !found || attachment.UID != uid || !writer.Detaching(attachment) || !writer.Released(attachment, nil) {
		return err
	}
	return kube.RemoveFinalizers(ctx, r.DPU.Client, attachment, storagev1alpha1.FinalizerWriterClaim)
}

// keep reports whether the attachment has to stay for now: a failover ended it, or its path
// to the storage is lost, and its owner in the host cluster still wants it. If it went, it
// would be made anew, and the DPU would get the right to write back that cannot use it.
func keep(ctx context.Context, host client.Reader, attachment *storagev1alpha1.VolumeAttachment) (bool, error) {
	namespace, name, ok := strings.Cut(attachment.Annotations[storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment], "/")
	if host == nil || !ok {
		return false, nil
	}
	owner, node := &storagev1alpha1.DPUVolumeAttachment{}, &moorv1alpha1.DPUStorageNode{}
	found, err := kube.Find(ctx, host, client.ObjectKey{Namespace: namespace, Name: name}, owner)
	if err != nil || !found || !owner.DeletionTimestamp.IsZero() {
		return false, err
	}
	if meta.IsStatusConditionFalse(owner.Status.Conditions, storagev1alpha1.ConditionPathHealthy) {
		return true, nil
	}
	found, err = kube.Find(ctx, host, client.ObjectKey{Name: owner.Spec.DPUNodeName}, node)
	return found && meta.IsStatusConditionTrue(node.Status.Conditions, moorv1alpha1.ConditionFailover), err
}

// recordFenced records on the volume that its fence has its receipt.
func (r *Reconciler) recordFenced(ctx context.Context, attachment *storagev1alpha1.VolumeAttachment, receipt moorv1alpha1.Receipt) {
	namespace, _, ok := strings.Cut(attachment.Annotations[storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment], "/")
	if r.Recorder == nil || r.Host.Live == nil || !ok {
		return
	}
	volume := &storagev1alpha1.DPUVolume{}
	found, err := kube.Find(ctx, r.Host.Live, client.ObjectKey{Namespace: namespace, Name: attachment.Spec.Source.VolumeRef.Name}, volume)
	if err == nil && found {
		r.Recorder.Event(volume, corev1.EventTypeNormal, storagev1alpha1.EventFailoverFenced, Message(receipt))
	}
}

func writerClaim(ctx context.Context, dpu client.Reader, attachment *storagev1alpha1.VolumeAttachment) (*moorv1alpha1.WriterClaim, error) {
	if attachment.Spec.Source.VolumeRef == nil {
		return nil, nil
	}
	claim := &moorv1alpha1.WriterClaim{}
	found, err := kube.Find(ctx, dpu, client.ObjectKey{Namespace: attachment.Namespace, Name: attachment.Spec.Source.VolumeRef.Name}, claim)
	if err != nil || !found {
		return nil, err
	}
	return claim, nil
}
