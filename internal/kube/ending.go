package kube

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
)

// Ending is a manager that ends when it is asked to also while its caches are not filled, as where an
// API server does not answer. That of controller-runtime v0.25.2 then never ends, and keeps a
// processor busy: runnableGroup.Start goes on to wait for the caches after its context has ended.
func Ending(mgr ctrl.Manager) (ctrl.Manager, error) {
	filled := make(begun)
	if err := mgr.Add(filled); err != nil {
		return nil, fmt.Errorf("notice when the caches are filled: %w", err)
	}
	return &ending{mgr, filled}, nil
}

// begun is closed when a manager starts what works, which it does once the caches of all its
// clusters are filled.
type begun chan struct{}

var _ ctrlmanager.LeaderElectionRunnable = begun(nil)

// NeedLeaderElection is false: caches are filled before the lease is waited for.
func (begun) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (b begun) Start(context.Context) error {
	close(b)
	return nil
}

type ending struct {
	ctrl.Manager
	filled begun
}

// Start runs the manager until ctx ends. Nothing waits for one whose caches were never filled: no
// controller has begun. It is left to the end of the process.
func (e *ending) Start(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- e.Manager.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case <-e.filled:
		return <-ended
	default:
		return nil
	}
}
