package dpf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// patience is how long a wait may take: the timeout, or four fifths of what
// the caller leaves, so that an answer still reaches it.
func (o Options) patience(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return o.Timeout
	}
	return min(o.Timeout, time.Until(deadline)*4/5)
}

// unbegun reports whether nothing has been begun for the volume: no vendor was
// ever chosen.
func unbegun(volume *storagev1alpha1.DPUVolume, uid types.UID) bool {
	return volume.UID == uid && volume.DeletionTimestamp.IsZero() &&
		!meta.IsStatusConditionTrue(volume.Status.Conditions, storagev1alpha1.ConditionScheduled) &&
		volume.Status.Phase != storagev1alpha1.DPUVolumeBound
}

// giveUp takes back a request for which nothing could be begun in time, and
// turns the error into a final one: whoever asked may ask again, but if the
// claim was deleted meanwhile, nobody will, and nothing must be left. If it
// cannot be taken back in time, the outcome stays uncertain. A caller that has
// gone itself is no reason to give up.
func giveUp[T client.Object](ctx context.Context, o Options, awaiter *kube.Awaiter[T], asked T, cause error) error {
	if !errors.Is(cause, context.DeadlineExceeded) || ctx.Err() != nil {
		return cause
	}
	if takeBack(ctx, o, awaiter, asked) != nil {
		return cause
	}
	return fmt.Errorf("%w; the request was taken back: %s", provisioner.ErrPrecondition, cause.Error())
}

// takeBack deletes what was asked for, and waits until nothing of it is left.
func takeBack[T client.Object](ctx context.Context, o Options, awaiter *kube.Awaiter[T], asked T) error {
	if err := kube.Delete(ctx, o.Client, asked); err != nil {
		return err
	}
	return gone(ctx, awaiter, asked)
}

// gone waits until nothing is left of what was asked for and deleted.
func gone[T client.Object](ctx context.Context, awaiter *kube.Awaiter[T], asked T) error {
	_, err := awaiter.Await(ctx, client.ObjectKeyFromObject(asked), func(now T, found bool) (bool, error) {
		return !found || now.GetUID() != asked.GetUID(), nil
	})
	return err
}
