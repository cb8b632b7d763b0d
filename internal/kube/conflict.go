package kube

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// conflictRetry is when an object is looked at again after a conflict: by then
// the cache mostly shows what was written instead, and that starts a
// pass anyway.
const conflictRetry = 100 * time.Millisecond

// Retrying is a reconciler whose passes that end with nothing but a conflict
// are repeated after a moment. To lose a compare-and-swap is no failure: the
// pass rested on what was over, and the next one settles it. Every reconciler
// is registered through it.
//
// A pass that a reconciler asks for at a time is an event of its own: without that it
// would inherit the priority of the pass before, and a host that falls silent would wait
// for first lists and resyncs because nothing else has happened to it since the start.
func Retrying(r reconcile.Reconciler) reconcile.Reconciler { return retrying{r} }

type retrying struct{ reconcile.Reconciler }

// Reconcile makes one pass.
func (r retrying) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := r.Reconciler.Reconcile(ctx, req)
	if OnlyConflicts(err) {
		ctrl.LoggerFrom(ctx).V(1).Info("lost a race for an object, looking again", "reason", err.Error())
		result, err = reconcile.Result{RequeueAfter: conflictRetry, Priority: result.Priority}, nil
	}
	if result.RequeueAfter > 0 && result.Priority == nil {
		result.Priority = ptr.To(0)
	}
	return result, err
}

// OnlyConflicts reports whether err is a conflict, or several, and nothing else
// that has to be reported.
func OnlyConflicts(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it walks through what err wraps by itself
	case nil:
		return false
	case interface{ Unwrap() []error }:
		for _, each := range e.Unwrap() {
			if !OnlyConflicts(each) {
				return false
			}
		}
		return true
	case interface{ Unwrap() error }:
		return OnlyConflicts(e.Unwrap())
	}
	return apierrors.IsConflict(err)
}

// uidField is what a server refuses of a patch for an object that another has
// replaced.
const uidField = "metadata.uid"

// refusesUID reports whether a server refused a patch because another object has the
// name: to it that is an invalid change of the UID.
func refusesUID(err error) bool {
	cause, found := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	return apierrors.IsInvalid(err) && found && cause.Field == uidField
}

// replaced is the conflict of a write for an object in whose place there is another.
func replaced(obj client.Object, uid types.UID) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: fmt.Sprintf("%T", obj)}, obj.GetName(),
		fmt.Errorf("the one that was read, with UID %s, was replaced by another", uid))
}
