package kubetest

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Run runs a manager until the test ends. That it does not end within its grace period is no failure: a
// queue of controller-runtime v0.24.1 can keep the workers of a controller that ends in the midst
// of work (kubernetes-sigs/controller-runtime#3538).
func Run(t *testing.T, mgr manager.Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("manager: %v", err)
		}
	})
}
