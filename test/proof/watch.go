package proof

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/reference/writelog"
)

const (
	// retry is how long a lost watch waits before it is begun again.
	retry = 100 * time.Millisecond
	// catchUp is how far the recorder may lag behind the API server.
	catchUp = 30 * time.Second
)

// Recorder records every state of one WriterClaim. It is safe for concurrent
// use.
type Recorder struct {
	where             client.WithWatch
	namespace, volume string

	mu     sync.Mutex
	states []State
	// version is the newest resourceVersion seen, seen all of the claim's.
	version string
	seen    map[string]bool
	gone    bool
	err     error
	// changed is closed and made anew with every event.
	changed chan struct{}
}

// Watch begins to record the claim of a volume in the DPU cluster. It returns
// once the watch stands; the recorder ends with ctx. A watch that ends is
// begun again where it ended, so that no state is missed.
func Watch(ctx context.Context, where client.WithWatch, namespace, volume string) (*Recorder, error) {
	r := &Recorder{
		where: where, namespace: namespace, volume: volume,
		seen: map[string]bool{}, changed: make(chan struct{}),
	}
	var list moorv1alpha1.WriterClaimList
	if err := where.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list the WriterClaims of namespace %s to record that of volume %s: %w", namespace, volume, err)
	}
	for i := range list.Items {
		r.note(&list.Items[i], false)
	}
	r.version = list.ResourceVersion
	w, err := r.begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch the WriterClaim of volume %s: %w", volume, err)
	}
	go r.follow(ctx, w)
	return r, nil
}

// begin begins a watch behind the newest version seen.
func (r *Recorder) begin(ctx context.Context) (watch.Interface, error) {
	r.mu.Lock()
	version := r.version
	r.mu.Unlock()
	return r.where.Watch(ctx, &moorv1alpha1.WriterClaimList{}, &client.ListOptions{
		Namespace: r.namespace, Raw: &metav1.ListOptions{ResourceVersion: version},
	})
}

func (r *Recorder) follow(ctx context.Context, w watch.Interface) {
	for {
		err := r.drain(ctx, w)
		if err == nil {
			err = wait.PollUntilContextCancel(ctx, retry, false, func(ctx context.Context) (bool, error) {
				var err error
				w, err = r.begin(ctx)
				if lost(err) {
					return false, err
				}
				return err == nil, nil
			})
		}
		if err != nil {
			r.fail(err)
			return
		}
	}
}

// drain records until the watch ends; an error says that it cannot be begun
// again without a hole.
func (r *Recorder) drain(ctx context.Context, w watch.Interface) error {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open := <-w.ResultChan():
			if !open {
				return nil
			}
			if event.Type == watch.Error {
				if err := apierrors.FromObject(event.Object); lost(err) {
					return err
				}
				return nil
			}
			if claim, ok := event.Object.(*moorv1alpha1.WriterClaim); ok {
				r.note(claim, event.Type == watch.Deleted)
			}
		}
	}
}

// lost reports whether the API server has forgotten where the watch was.
func lost(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

func (r *Recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = fmt.Errorf("the record of the WriterClaim of volume %s ended: %w", r.volume, err)
	r.wake()
}

// wake tells those that wait; the lock is held.
func (r *Recorder) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// note records what the claim says, if that is news.
func (r *Recorder) note(claim *moorv1alpha1.WriterClaim, gone bool) {
	at := monotonic()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version = claim.ResourceVersion
	if claim.Name != r.volume {
		return
	}
	defer r.wake()
	r.seen[claim.ResourceVersion], r.gone = true, gone
	if gone {
		return
	}
	s := State{Phase: moorv1alpha1.ClaimFree}
	if c := claim.Status; c != nil && c.Phase != "" {
		s = State{Phase: c.Phase, Holder: c.Holder, Epoch: c.Epoch, Receipts: slices.Clone(c.Receipts)}
	}
	if last := len(r.states) - 1; last >= 0 {
		s.At, s.NotBefore = r.states[last].At, r.states[last].NotBefore
		if equality.Semantic.DeepEqual(s, r.states[last]) {
			return
		}
	}
	if s.At, s.NotBefore = at, 0; s.held() && at > 0 {
		s.NotBefore = endOf(s.Epoch-1, s.Receipts, time.Now(), at)
	}
	r.states = append(r.states, s)
}

// endOf is CLOCK_MONOTONIC of the second in which an epoch ended, by its receipt, which
// has the wall clock's time; 0 if there is none, or it is not of this boot.
func endOf(epoch int64, receipts []moorv1alpha1.Receipt, wall time.Time, now time.Duration) time.Duration {
	for _, r := range receipts {
		if r.Epoch == epoch && !r.Time.IsZero() {
			return max(0, now-wall.Sub(r.Time.Time.Truncate(time.Second)))
		}
	}
	return 0
}

// States returns all states so far, once the recorder has seen what the API
// server says now. An error means that the record may have a hole.
func (r *Recorder) States(ctx context.Context) ([]State, error) {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	claim := &moorv1alpha1.WriterClaim{}
	err := r.where.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: r.volume}, claim)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read the WriterClaim of volume %s: %w", r.volume, err)
	}
	for missing := err != nil; ; {
		r.mu.Lock()
		there := r.seen[claim.ResourceVersion] || missing && (r.gone || len(r.states) == 0)
		states, changed, failed := slices.Clone(r.states), r.changed, r.err
		r.mu.Unlock()
		if there {
			return states, nil
		}
		if failed != nil {
			return nil, failed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until version %q of the WriterClaim of volume %s is recorded: %w", claim.ResourceVersion, r.volume, ctx.Err())
		}
	}
}

// monotonic is the clock of the medium log. It is 0, not known, if the kernel does not say.
func monotonic() time.Duration {
	now, err := writelog.Now()
	if err != nil {
		return 0
	}
	return now
}
