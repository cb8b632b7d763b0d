// Package ask has volumes staged on this node: it makes PodStagings, waits for what the controller makes of
// them, and removes them. What a volume is staged for, and where it is seen, is up to the caller.
//
// It keeps nothing in memory: a staging has a name that follows from what it is for, so each call can be
// repeated after a restart at any instant.
package ask

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Awaiter waits for PodStagings; *kube.Awaiter is the real one.
type Awaiter interface {
	Await(ctx context.Context, key types.NamespacedName, done func(s *moorv1alpha1.PodStaging, found bool) (bool, error)) (*moorv1alpha1.PodStaging, error)
}

// Stagings are those of this node.
type Stagings struct {
	// Boot is what this boot of the node is called: of another one nothing is mounted any more.
	Boot string
	// Client reads PodStagings of this node from a cache; Live reads from the API server itself.
	Client client.Client
	Live   client.Reader
	// Awaiter waits for what the cache of Client shows.
	Awaiter Awaiter
}

// Ensure returns the PodStaging that is wanted, made if it is not there and may allows it. One of its name
// that is of no use any more is removed first. Its finalizer is the controller's, which adds it before it
// makes the first pod: until then there is nothing to undo. ErrExists if it is there, read-only and not
// wanted so, or the other way round.
func (s Stagings) Ensure(ctx context.Context, want *moorv1alpha1.PodStaging, may func(context.Context) error) (*moorv1alpha1.PodStaging, error) {
	for {
		have := want.DeepCopy()
		found, err := kube.Find(ctx, s.Client, client.ObjectKeyFromObject(have), have)
		if err != nil {
			return nil, err
		}
		if !found {
			if have, err = s.create(ctx, want, may); err != nil {
				return nil, err
			}
		}
		over, err := s.over(want, have)
		if err != nil || !over {
			return have, err
		}
		if err := s.Remove(ctx, have); err != nil {
			return nil, fmt.Errorf("remove the staging that was there before: %w", err)
		}
	}
}

// create makes the PodStaging, or reads the one that the cache does not show yet.
func (s Stagings) create(ctx context.Context, want *moorv1alpha1.PodStaging, may func(context.Context) error) (*moorv1alpha1.PodStaging, error) {
	if err := may(ctx); err != nil {
		return nil, err
	}
	out := want.DeepCopy()
	if _, err := kube.CreateLive(ctx, s.Client, s.Live, out); err != nil {
		return nil, fmt.Errorf("ask for the volume to be staged: %w: %w", provisioner.ErrUnavailable, err)
	}
	return out, nil
}

// over reports whether a PodStaging cannot serve any more, so that it has to be made anew: it is being
// removed, is of another volume or user of this name, or was staged in another boot of the node, after which
// nothing is mounted any more.
func (s Stagings) over(want, have *moorv1alpha1.PodStaging) (bool, error) {
	switch report := have.Status.Report; {
	case !have.DeletionTimestamp.IsZero(), have.Spec.VolumeName != want.Spec.VolumeName, have.Spec.User.UID != want.Spec.User.UID:
		return true, nil
	case have.Status.Phase == moorv1alpha1.PodStagingStaged && report != nil && report.BootID != s.Boot:
		return true, nil
	case have.Spec.ReadOnly != want.Spec.ReadOnly:
		return false, fmt.Errorf("%s has it with read-only %t, asked was %t: %w", have.Spec.User, have.Spec.ReadOnly, want.Spec.ReadOnly, provisioner.ErrExists)
	}
	return false, nil
}

// Staged waits until the volume is staged. A PodStaging that has failed is removed: the next call makes
// another. What it waited for when its time was over is in the words of its error.
func (s Stagings) Staged(ctx context.Context, of *moorv1alpha1.PodStaging) (*moorv1alpha1.PodStaging, error) {
	last := of
	got, err := s.Awaiter.Await(ctx, client.ObjectKeyFromObject(of), func(p *moorv1alpha1.PodStaging, found bool) (bool, error) {
		if !found || p.UID != of.UID {
			return false, nil // the cache does not show it yet
		}
		last = p
		switch {
		case !p.DeletionTimestamp.IsZero():
			return false, fmt.Errorf("its staging was called off: %s: %w", Words(p), provisioner.ErrUnavailable)
		case p.Status.Phase == moorv1alpha1.PodStagingFailed:
			return false, errFailed
		}
		return p.Status.Phase == moorv1alpha1.PodStagingStaged && p.Status.Directory != "", nil
	})
	switch {
	case errors.Is(err, errFailed):
		if err := kube.Delete(ctx, s.Client, last); err != nil {
			return nil, fmt.Errorf("the staging failed: %s; remove it: %w: %w", Words(last), provisioner.ErrUnavailable, err)
		}
		return nil, fmt.Errorf("the staging failed: %s", Words(last))
	case timeOver(err):
		return nil, fmt.Errorf("it is not staged yet: %s: %w", Words(last), provisioner.ErrUnavailable)
	}
	return got, err
}

// errFailed ends the wait for a staging that has failed.
var errFailed = errors.New("the staging failed")

// Remove deletes a PodStaging and waits until it is gone, which the API server itself has to say.
func (s Stagings) Remove(ctx context.Context, p *moorv1alpha1.PodStaging) error {
	if err := kube.Delete(ctx, s.Client, p); err != nil {
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	last := p
	_, err := s.Awaiter.Await(ctx, client.ObjectKeyFromObject(p), func(now *moorv1alpha1.PodStaging, found bool) (bool, error) {
		if found && now.UID == p.UID {
			last = now
			return false, nil
		}
		var live moorv1alpha1.PodStaging
		found, err := kube.Find(ctx, s.Live, client.ObjectKeyFromObject(p), &live)
		return !found || live.UID != p.UID, err
	})
	switch {
	case timeOver(err):
		return fmt.Errorf("it is not unstaged yet: %s: %w", Words(last), provisioner.ErrUnavailable)
	case err != nil:
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	return nil
}

// timeOver reports whether a wait ended because the time of the call was over.
func timeOver(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// Words is what a PodStaging waits for.
func Words(p *moorv1alpha1.PodStaging) string {
	switch {
	case p.Status.Message != "":
		return p.Status.Message
	case p.Status.Phase != "":
		return fmt.Sprintf("PodStaging %s is %s", p.Name, p.Status.Phase)
	}
	return fmt.Sprintf("PodStaging %s was not looked at yet (does pod-provisioner --mode=controller run?)", p.Name)
}

const (
	// defaultWait is how long a call waits for a pod. What the volume's user waits for is told when it
	// ends, so it is shorter than the two minutes of the kubelet; the staging goes on meanwhile.
	defaultWait = time.Minute
	// margin is what is left of the caller's time for its answer: a call that is over tells no words.
	margin = 3 * time.Second
)

// Bounded is a context that ends before the call does, so that words can be told, and after wait at the
// latest; 0: one minute.
func Bounded(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	wait = cmp.Or(wait, defaultWait)
	if end, ok := ctx.Deadline(); ok {
		if left := time.Until(end); left > 2*margin {
			wait = min(wait, left-margin)
		}
	}
	return context.WithTimeout(ctx, wait)
}
