package dpucluster

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/moor-storage/moor/internal/kube"
)

// Report is how a pass over an object of the DPU cluster ends: with one write of
// its status, if that differs from what is there.
type Report[T client.Object] struct {
	Object T
	// Finalizer is the reconciler's own. An object that is deleted and does not
	// have it any more needs no status.
	Finalizer string
	// Urgent: the status says something that changes now, even if what is waited
	// for is of the normal course and young.
	Urgent bool
	// Change sets the status; message says what is waited for, or what failed.
	Change func(o T, message string)
}

// Write writes the status that follows from the outcome of the phases.
func (r Report[T]) Write(ctx context.Context, c client.Client, outcome error, now time.Time) (ctrl.Result, error) {
	if apierrors.IsConflict(outcome) {
		return ctrl.Result{}, outcome // the cache is behind, which the user need not know
	}
	if !r.Object.GetDeletionTimestamp().IsZero() && !controllerutil.ContainsFinalizer(r.Object, r.Finalizer) {
		return ctrl.Result{}, outcome
	}
	settled := kube.Settle(outcome, now)
	if settled.StatusAfter > 0 && !r.Urgent {
		return ctrl.Result{RequeueAfter: settled.StatusAfter}, nil
	}
	_, err := kube.PatchStatus(ctx, c, r.Object, func(o T) { r.Change(o, settled.Message) })
	return ctrl.Result{RequeueAfter: settled.RetryAfter}, errors.Join(settled.Err, kube.IgnoreNotFound(err))
}
