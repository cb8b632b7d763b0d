package fleet

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/kit"
)

const (
	// patience is how long an API server may be away before a simulation gives up.
	patience = 2 * time.Minute
	// again is how soon it is asked again.
	again = 200 * time.Millisecond
	// page is how many objects are listed at once, as client-go does it.
	page = 500
)

// follower follows the objects of one kind.
type follower struct {
	client client.WithWatch
	list   client.ObjectList
	seen   func(client.Object)
	// at is the version from which on nothing was told yet; "" is not known.
	at string
	// good is when the API server was last known to be there.
	good time.Time
}

// Follow tells of each object of a kind in kit.Namespace that changes from now on,
// until ctx ends. A watch that ends goes on where it was, also at an API server that
// was restarted; where that is not possible, all objects are told again.
func Follow(ctx context.Context, c client.WithWatch, list client.ObjectList, seen func(client.Object)) error {
	if err := c.List(ctx, list, client.InNamespace(kit.Namespace), client.Limit(1)); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("list %T: %w", list, err)
	}
	f := &follower{client: c, list: list, seen: seen, at: list.GetResourceVersion(), good: time.Now()}
	for ctx.Err() == nil {
		err := f.follow(ctx)
		switch {
		case err == nil, ctx.Err() != nil:
		case time.Since(f.good) > patience:
			return err
		default:
			Pause(ctx, again)
		}
	}
	return nil
}

// follow follows until the watch ends. The error says that nothing could be watched, or how the
// watch broke.
func (f *follower) follow(ctx context.Context) error {
	if f.at == "" {
		if err := f.tell(ctx); err != nil {
			return err
		}
	}
	w, err := f.client.Watch(ctx, f.list, client.InNamespace(kit.Namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: f.at, AllowWatchBookmarks: true}})
	if err != nil {
		if lost(err) {
			f.at = ""
		}
		return fmt.Errorf("watch %T from %s: %w", f.list, f.at, err)
	}
	defer func() {
		w.Stop()
		f.good = time.Now()
	}()
	for e := range w.ResultChan() {
		o, ok := e.Object.(client.Object)
		if !ok || e.Type == watch.Error {
			err := apierrors.FromObject(e.Object)
			if lost(err) {
				f.at = ""
			}
			return fmt.Errorf("watch %T from %s: %w", f.list, f.at, err)
		}
		f.at = o.GetResourceVersion()
		if e.Type != watch.Bookmark {
			f.seen(o)
		}
	}
	return nil
}

// tell tells of all objects, in pages: an API server without watch caches does not answer for tens of
// thousands within the minute that it gives a request.
func (f *follower) tell(ctx context.Context) error {
	next := ""
	for {
		if err := f.client.List(ctx, f.list, client.InNamespace(kit.Namespace), client.Limit(page), client.Continue(next)); err != nil {
			return fmt.Errorf("list %T: %w", f.list, err)
		}
		err := meta.EachListItem(f.list, func(o runtime.Object) error {
			if o, ok := o.(client.Object); ok {
				f.seen(o)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("list %T: %w", f.list, err)
		}
		if next = f.list.GetContinue(); next == "" {
			f.at = f.list.GetResourceVersion()
			return nil
		}
	}
}

// lost reports whether an API server no longer knows what came after a version.
func lost(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}
