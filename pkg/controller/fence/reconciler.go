// Package fence takes the right to write back. It alone frees a WriterClaim,
// and only with a receipt: a proof from outside the host that the old holder
// can no longer write. Without one it waits. Floor 4.
package fence

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// keepReceipts is how many receipts a claim keeps, the schema's limit.
const keepReceipts = 8

// Reconciler looks at VolumeAttachments of the DPU cluster.
type Reconciler struct {
	// DPU writes to the DPU cluster; its cache serves only to skip work.
	DPU client.Client
	// Live reads the API server of the DPU cluster itself.
	Live client.Reader
	// Cluster is the DPU cluster, for the watch.
	Cluster cluster.Cluster
	Clock   clock.PassiveClock
}

// SetupWithManager watches the VolumeAttachments of the DPU cluster.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("fence").
		WatchesRawSource(source.Kind(r.Cluster.GetCache(), &storagev1alpha1.VolumeAttachment{},
			&handler.TypedEnqueueRequestForObject[*storagev1alpha1.VolumeAttachment]{})).
		Complete(r)
}

// Reconcile frees the claim of an attachment that is being deleted, once
// there is a receipt, and lets the attachment go.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	attachment := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, r.DPU, req.NamespacedName, attachment)
	if err != nil || !found || !concerns(attachment) {
		return ctrl.Result{}, err
	}
	found, err = kube.Find(ctx, r.Live, req.NamespacedName, attachment)
	if err != nil || !found || !concerns(attachment) {
		return ctrl.Result{}, err
	}
	claim, err := r.claim(ctx, attachment)
	if err != nil {
		return ctrl.Result{}, err
	}
	d := decide(attachment, claim)
	if d.action == wait {
		return ctrl.Result{}, nil
	}
	if d.action == free {
		if err := r.free(ctx, claim, d.receipt); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, kube.RemoveFinalizers(ctx, r.DPU, attachment, storagev1alpha1.FinalizerWriterClaim)
}

// concerns reports whether the attachment is on its way out and still tied to
// a claim.
func concerns(a *storagev1alpha1.VolumeAttachment) bool {
	return !a.DeletionTimestamp.IsZero() && controllerutil.ContainsFinalizer(a, storagev1alpha1.FinalizerWriterClaim)
}

func (r *Reconciler) claim(ctx context.Context, attachment *storagev1alpha1.VolumeAttachment) (*moorv1alpha1.WriterClaim, error) {
	if attachment.Spec.Source.VolumeRef == nil {
		return nil, nil
	}
	claim := &moorv1alpha1.WriterClaim{}
	found, err := kube.Find(ctx, r.Live, client.ObjectKey{Namespace: attachment.Namespace, Name: attachment.Spec.Source.VolumeRef.Name}, claim)
	if err != nil || !found {
		return nil, err
	}
	return claim, nil
}

// free writes the claim with the resourceVersion that was read: whoever
// changed it in between wins, and everything is looked at again.
func (r *Reconciler) free(ctx context.Context, claim *moorv1alpha1.WriterClaim, receipt moorv1alpha1.Receipt) error {
	receipt.Time = metav1.NewTime(r.Clock.Now())
	claim.Status.Phase = moorv1alpha1.ClaimFree
	claim.Status.Holder, claim.Status.Attachment = "", ""
	claim.Status.Receipts = append(claim.Status.Receipts, receipt)
	if extra := len(claim.Status.Receipts) - keepReceipts; extra > 0 {
		claim.Status.Receipts = claim.Status.Receipts[extra:]
	}
	if err := r.DPU.Status().Update(ctx, claim); err != nil {
		return fmt.Errorf("free the right to write volume %s, held by DPU %s under epoch %d: %w", claim.Spec.VolumeName, receipt.Holder, receipt.Epoch, err)
	}
	return nil
}
