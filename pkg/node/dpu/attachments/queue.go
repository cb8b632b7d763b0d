package attachments

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// queueLength is how many attachments may wait to be looked at again after one
// round of the patrol; the next round finds those that did not fit.
const queueLength = 256

// Queue holds the attachments that have to be looked at again although no watch
// reports a change. Safe for concurrent use.
type Queue struct {
	store  *Store
	events chan event.GenericEvent
}

// NewQueue returns an empty queue of the store's attachments.
func NewQueue(store *Store) *Queue {
	return &Queue{store: store, events: make(chan event.GenericEvent, queueLength)}
}

// Events are the attachments to be looked at again, for a source.Channel.
func (q *Queue) Events() <-chan event.GenericEvent { return q.events }

// Add asks for one attachment to be looked at again. It never blocks.
func (q *Queue) Add(a *storagev1alpha1.VolumeAttachment) {
	select {
	case q.events <- event.GenericEvent{Object: a.DeepCopy()}:
	default: // the next round, or the next retry of a failure, finds it
	}
}

// AddWaiting asks for every attachment to be looked at again that waits for
// something, or goes. It reads the cache, and never blocks for long.
func (q *Queue) AddWaiting(ctx context.Context) {
	all, err := q.store.Cached(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list what may wait for a vendor plugin")
		return
	}
	for i := range all {
		if all[i].Status.Message != "" || !all[i].DeletionTimestamp.IsZero() {
			q.Add(&all[i])
		}
	}
}
