package kubetest

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Watches is a manager that tells what its controllers watch and no cache held before they
// started: what a replica that takes over has to list first.
type Watches struct {
	ctrl.Manager

	mu sync.Mutex
	// waits are the controllers that do not work yet.
	waits   int
	working chan struct{}
	caches  []*watchedCache
}

// WatchesOf follows a manager, which is set up after that.
func WatchesOf(mgr ctrl.Manager) *Watches {
	w := &Watches{Manager: mgr, working: make(chan struct{})}
	w.CacheOf("", mgr.GetCache())
	return w
}

// CacheOf follows the cache of another cluster too, which the controllers are given instead.
func (w *Watches) CacheOf(cluster string, of cache.Cache) cache.Cache {
	c := &watchedCache{Cache: of, in: w, cluster: cluster, held: map[string]bool{}, late: map[string]bool{}}
	w.caches = append(w.caches, c)
	return c
}

// GetCache returns the cache of the manager's own cluster.
func (w *Watches) GetCache() cache.Cache { return w.caches[0] }

// GetFieldIndexer returns what makes indexes of that cache.
func (w *Watches) GetFieldIndexer() client.FieldIndexer { return w.caches[0] }

// GetControllerOptions allows of the same controllers in several managers of a test's process.
func (w *Watches) GetControllerOptions() config.Controller {
	o := w.Manager.GetControllerOptions()
	o.SkipNameValidation = ptr.To(true)
	return o
}

// Add counts controllers.
func (w *Watches) Add(r manager.Runnable) error {
	if _, is := r.(controller.Controller); is {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.waits++
	}
	return w.Manager.Add(r)
}

// GetLogger returns the logger by which a controller says that it has asked for all that it
// watches.
func (w *Watches) GetLogger() logr.Logger {
	return funcr.NewJSON(func(string) {}, funcr.Options{RenderBuiltinsHook: func(pairs []any) []any {
		if slices.Contains(pairs, any("Starting workers")) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.waits--; w.waits == 0 {
				close(w.working)
			}
		}
		return pairs
	}})
}

// Late starts the manager, waits until all its controllers work, and returns what they asked
// for that was not held: "cluster/*v1.Kind", sorted.
func (w *Watches) Late(t *testing.T) []string {
	t.Helper()
	for _, c := range w.caches {
		c.start()
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Start(ctx) }()
	select {
	case <-w.working:
	case err := <-ended:
		t.Fatalf("the manager ended before its controllers worked: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("not all controllers work within a minute")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var out []string
	for _, c := range w.caches {
		out = append(out, slices.Collect(maps.Keys(c.late))...)
	}
	slices.Sort(out)
	return out
}

// watchedCache notes what is asked for.
type watchedCache struct {
	cache.Cache
	in      *Watches
	cluster string
	started bool
	// held was asked for before the start, late after it.
	held, late map[string]bool
}

func (c *watchedCache) start() {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.started = true
}

func (c *watchedCache) note(o client.Object) {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	kind := c.cluster + "/" + reflect.TypeOf(o).String()
	switch {
	case !c.started:
		c.held[kind] = true
	case !c.held[kind]:
		c.late[kind] = true
	}
}

func (c *watchedCache) GetInformer(ctx context.Context, o client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	c.note(o)
	return c.Cache.GetInformer(ctx, o, opts...)
}

func (c *watchedCache) IndexField(ctx context.Context, o client.Object, field string, extract client.IndexerFunc) error {
	c.note(o)
	return c.Cache.IndexField(ctx, o, field, extract)
}
