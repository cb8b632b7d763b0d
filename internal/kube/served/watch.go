package served

import (
	"context"
	"errors"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// period is how often a controller looks whether others' CRDs have taken the place of
// those with which it was started. Whatever is written in between loses fields.
const period = 5 * time.Second

// watcher ends its manager once an API server drops fields. It asks for the addresses of the
// schemas alone unless one has changed.
type watcher struct{ checkers []*checker }

var _ manager.LeaderElectionRunnable = (*watcher)(nil)

// NeedLeaderElection is false: a replica that stands by would write with the same CRDs.
func (w *watcher) NeedLeaderElection() bool { return false }

// Start looks until ctx ends, or an API server drops fields.
func (w *watcher) Start(ctx context.Context) error {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for _, c := range w.checkers {
			if err := c.dropped(); err != nil {
				return err
			}
		}
	}
}

// dropped is check without what is only not known: that an API server does not answer is
// told of by others.
func (c *checker) dropped() error {
	err := c.check()
	if err == nil {
		return nil
	}
	if _, dropped := errors.AsType[*DroppedError](err); dropped {
		return err
	}
	ctrl.Log.V(1).Info("whether the API server keeps every field is not known", "reason", err.Error())
	return nil
}
