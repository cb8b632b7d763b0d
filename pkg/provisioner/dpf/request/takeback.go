package request

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Patience is how long a wait may take: the timeout, or four fifths of what
// the caller leaves, so that an answer still reaches it.
func (o Options) Patience(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return o.Timeout
	}
	return min(o.Timeout, time.Until(deadline)*4/5)
}

// GiveUp takes back a request for which nothing could be begun in time, and
// turns the error into a final one: the caller may ask again, but does not if the
// claim was deleted meanwhile, and then nothing must be left. If it
// cannot be taken back in time, the outcome stays uncertain. A caller that has
// gone itself is no reason to give up.
func GiveUp[T client.Object](ctx context.Context, o Options, awaiter *kube.Awaiter[T], asked T, cause error) error {
	if !errors.Is(cause, context.DeadlineExceeded) || ctx.Err() != nil {
		return cause
	}
	if TakeBack(ctx, o, awaiter, asked) != nil {
		return cause
	}
	return fmt.Errorf("%w; the request was taken back: %s", provisioner.ErrPrecondition, cause.Error())
}

// TakeBack deletes what was asked for, and waits until nothing of it is left.
func TakeBack[T client.Object](ctx context.Context, o Options, awaiter *kube.Awaiter[T], asked T) error {
	if err := kube.Delete(ctx, o.Client, asked); err != nil {
		return err
	}
	return AwaitGone(ctx, awaiter, asked)
}

// AwaitDeleted waits until what was deleted is gone; it returns the last of it that was seen.
// What the cache has not shown meanwhile may be there all the same, made by another process a
// moment ago: of that the server is asked.
func AwaitDeleted[T client.Object](ctx context.Context, o Options, awaiter *kube.Awaiter[T], deleted T) (T, error) {
	key, shown := client.ObjectKeyFromObject(deleted), o.Live == nil
	return awaiter.Await(ctx, key, func(now T, found bool) (bool, error) {
		if shown = shown || found; shown {
			return !found, nil
		}
		there, err := kube.Find(ctx, o.Live, key, now)
		return !there, err
	})
}

// AwaitGone waits until nothing is left of what was asked for and deleted.
func AwaitGone[T client.Object](ctx context.Context, awaiter *kube.Awaiter[T], asked T) error {
	_, err := awaiter.Await(ctx, client.ObjectKeyFromObject(asked), func(now T, found bool) (bool, error) {
		return !found || now.GetUID() != asked.GetUID(), nil
	})
	return err
}
