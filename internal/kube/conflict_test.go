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
	}{
		"none":                    {nil, false},
		"conflict":                {conflict, true},
		"wrapped":                 {fmt.Errorf("grant v1: %w", fmt.Errorf("update: %w", conflict)), true},
		"several":                 {errors.Join(conflict, fmt.Errorf("patch: %w", conflict)), true},
		"another":                 {other, false},
		"another of the server":   {apierrors.NewInternalError(other), false},
		"with another":            {errors.Join(conflict, other), false},
		"wrapped with another":    {fmt.Errorf("%w: %w", other, conflict), false},
		"exists, which is no CAS": {apierrors.NewAlreadyExists(schema.GroupResource{}, "v1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			var said []string
			ctx := ctrl.LoggerInto(t.Context(), funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{Verbosity: 1}))
			asked := reconcile.Result{RequeueAfter: time.Hour}
			r := Retrying(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return asked, tc.err }))
			got, err := r.Reconcile(ctx, reconcile.Request{})
			if got.Priority == nil || *got.Priority != 0 {
				t.Errorf("the next pass has the priority %v, want that of an event", got.Priority)
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
