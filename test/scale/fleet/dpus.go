package fleet

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// workers is how many attachments, or claims, are worked on at once: each real DPU works
// on four (cmd/snap-node-driver), and a rack of forty does not share them.
const workers = 160

// Queue is names whose objects have to be looked at.
type Queue = workqueue.TypedRateLimitingInterface[types.NamespacedName]

// Answer plays all DPUs until ctx ends: each change of a VolumeAttachment, or of the
// claim that it holds, is answered. One watch of each kind serves them all, where
// real DPUs have one each. As the real driver, it takes an attachment as its watch told it,
// and asks for the claim alone. Of one that was let go of, all else is
// others' business, as to the real driver: it asks for nothing.
func (f *Fleet) Answer(ctx context.Context) error {
	var seen told
	answer := func(ctx context.Context, key types.NamespacedName) error { return f.answer(ctx, key, seen.take(key)) }
	return Serve(ctx, answer,
		func(ctx context.Context, q Queue) error {
			return Follow(ctx, f.clients.DPU, &storagev1alpha1.VolumeAttachmentList{}, func(o client.Object) {
				if a, ok := o.(*storagev1alpha1.VolumeAttachment); ok && !letGo(a) {
					seen.note(a)
					q.Add(client.ObjectKeyFromObject(o))
				}
			})
		},
		func(ctx context.Context, q Queue) error {
			return Follow(ctx, f.clients.DPU, &moorv1alpha1.WriterClaimList{}, func(o client.Object) {
				if c, ok := o.(*moorv1alpha1.WriterClaim); ok && c.Status != nil && c.Status.Attachment != "" {
					q.Add(types.NamespacedName{Namespace: c.Namespace, Name: c.Status.Attachment})
				}
			})
		})
}

// told are the attachments that a watch told of and that were not answered yet.
type told struct {
	mu   sync.Mutex
	last map[types.NamespacedName]*storagev1alpha1.VolumeAttachment
}

func (t *told) note(a *storagev1alpha1.VolumeAttachment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		t.last = map[types.NamespacedName]*storagev1alpha1.VolumeAttachment{}
	}
	t.last[client.ObjectKeyFromObject(a)] = a
}

// take returns what was told last, once; nil if that was answered.
func (t *told) take(key types.NamespacedName) *storagev1alpha1.VolumeAttachment {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.last[key]
	delete(t.last, key)
	return a
}

// answer brings one attachment to where its DPU wants it. It is asked for if no watch told
// of it: its claim has changed, or what was written before was lost.
func (f *Fleet) answer(ctx context.Context, key types.NamespacedName, a *storagev1alpha1.VolumeAttachment) error {
	if a == nil {
		a = &storagev1alpha1.VolumeAttachment{}
		if found, err := kube.Find(ctx, f.clients.DPU, key, a); err != nil || !found {
			return err
		}
	}
	if a.Spec.Source.VolumeRef == nil || letGo(a) {
		return nil
	}
	claim, err := f.claim(ctx, a)
	if err != nil {
		return err
	}
	todo := answerTo(a, claim)
	if todo.hold {
		if _, err := kube.AddFinalizer(ctx, f.clients.DPU, a, storagev1alpha1.FinalizerDPUAttachment); err != nil {
			return err
		}
	}
	_, err = kube.PatchStatus(ctx, f.clients.DPU, a, func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU = todo.status })
	if err == nil && todo.release {
		err = kube.RemoveFinalizers(ctx, f.clients.DPU, a, storagev1alpha1.FinalizerDPUAttachment)
	}
	return client.IgnoreNotFound(err)
}

// claim is the one of an attachment; nil if there is none, or if it does not matter, as
// of an attachment that goes.
func (f *Fleet) claim(ctx context.Context, a *storagev1alpha1.VolumeAttachment) (*moorv1alpha1.WriterClaim, error) {
	if !a.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	claim := &moorv1alpha1.WriterClaim{}
	known, err := kube.Find(ctx, f.clients.DPU, types.NamespacedName{Namespace: a.Namespace, Name: a.Spec.Source.VolumeRef.Name}, claim)
	if err != nil || !known {
		return nil, err
	}
	return claim, nil
}

// Serve runs sources that fill a queue, and works it off, until ctx ends or a source
// fails.
func Serve(ctx context.Context, do func(context.Context, types.NamespacedName) error, sources ...func(context.Context, Queue) error) error {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](10*time.Millisecond, 5*time.Second))
	ended := make(chan error, len(sources))
	for _, source := range sources {
		go func() { ended <- source(ctx, q) }()
	}
	for range workers {
		go func() {
			for {
				key, over := q.Get()
				if over {
					return
				}
				if err := do(ctx, key); err != nil && ctx.Err() == nil {
					if !apierrors.IsConflict(err) {
						ctrl.LoggerFrom(ctx).Error(err, "play", "object", key)
					}
					q.AddRateLimited(key)
				} else {
					q.Forget(key)
				}
				q.Done(key)
			}
		}()
	}
	err := <-ended
	q.ShutDown()
	return err
}

// spread is a random part of a period.
func spread(period time.Duration) time.Duration {
	return time.Duration(rand.Float64() * float64(period))
}
