package kube

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestRetrying: a conflict, however wrapped, is no error and is tried again
// soon; what is more than that stays an error.
func TestRetrying(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "claims"}, "v1", errors.New("changed"))
	other := errors.New("no answer")
	for name, tc := range map[string]struct {
		err   error
		again bool
		// priority that the pass asked for; nil: that of an event.
		priority *int
	}{
		"none":                      {},
		"conflict":                  {err: conflict, again: true},
		"wrapped":                   {err: fmt.Errorf("grant v1: %w", fmt.Errorf("update: %w", conflict)), again: true},
		"several":                   {err: errors.Join(conflict, fmt.Errorf("patch: %w", conflict)), again: true},
		"another":                   {err: other},
		"another of the server":     {err: apierrors.NewInternalError(other)},
		"with another":              {err: errors.Join(conflict, other)},
		"wrapped with another":      {err: fmt.Errorf("%w: %w", other, conflict)},
		"exists, which is no CAS":   {err: apierrors.NewAlreadyExists(schema.GroupResource{}, "v1")},
		"conflict of what may wait": {err: conflict, again: true, priority: ptr.To(Later)},
	} {
		t.Run(name, func(t *testing.T) {
			var said []string
			ctx := ctrl.LoggerInto(t.Context(), funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{Verbosity: 1}))
			asked := reconcile.Result{RequeueAfter: time.Hour, Priority: tc.priority}
			r := Retrying(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return asked, tc.err }))
			got, err := r.Reconcile(ctx, reconcile.Request{})
			if want := ptr.Deref(tc.priority, 0); got.Priority == nil || *got.Priority != want {
				t.Errorf("the next pass has the priority %v, want %d", got.Priority, want)
			}
			switch {
			case tc.again && (err != nil || got.RequeueAfter <= 0 || got.RequeueAfter > time.Second || len(said) != 1):
				t.Errorf("got %+v, %v, said %q", got, err, said)
			case !tc.again && (!errors.Is(err, tc.err) || got.RequeueAfter != asked.RequeueAfter || len(said) != 0):
				t.Errorf("got %+v, %v, said %q", got, err, said)
			}
		})
	}
}
