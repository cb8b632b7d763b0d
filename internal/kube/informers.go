package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Informers are the informers of one cluster's cache, in the order in which they
// were asked for, so that a process can tell which of them has not read its first
// list yet. controller-runtime's cache makes them when a kind is first watched,
// indexed or read, and lists them nowhere.
type Informers struct {
	// Cluster is how messages name the cluster; empty if a process has one only.
	Cluster string

	mu      sync.Mutex
	started bool
	known   []kindInformer
}

type kindInformer struct {
	cache.Informer
	kind schema.GroupVersionKind
}

// New makes a cache whose informers these are (cache.NewCacheFunc), and which holds once
// what is equal in several objects. To make it, no API server is asked about needed kinds.
func (i *Informers) New(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
	if err := wholeLists(); err != nil {
		return nil, fmt.Errorf("read first lists at once: %w", err)
	}
	if err := mapped(cfg, &o); err != nil {
		return nil, err
	}
	c, err := cache.New(cfg, sharing(o))
	if err != nil {
		return nil, err
	}
	return &followed{Cache: c, informers: i, scheme: o.Scheme}, nil
}

// mapped gives a cache a mapper that has none: a manager gives it its own.
func mapped(cfg *rest.Config, o *cache.Options) error {
	if o.Mapper != nil {
		return nil
	}
	var err error
	if o.HTTPClient == nil {
		if o.HTTPClient, err = rest.HTTPClientFor(cfg); err != nil {
			return fmt.Errorf("connect to %s: %w", cfg.Host, err)
		}
	}
	o.Mapper, err = NewMapper(cfg, o.HTTPClient)
	return err
}

// Ready is nil once each informer has read its first list; otherwise the error
// names the first that has not.
func (i *Informers) Ready() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	where := ""
	if i.Cluster != "" {
		where = " of the " + i.Cluster
	}
	if !i.started {
		return errors.New("the cache" + where + " is not started yet")
	}
	for _, k := range i.known {
		if !k.HasSynced() {
			return fmt.Errorf("the cache of %s%s is not filled yet", k.kind.GroupKind(), where)
		}
	}
	return nil
}

// ReadyWith is Ready for a process that answers calls. Without a lease it is ready only
// after its manager has started the controllers, since these ask for informers; one that
// waits for a lease answers meanwhile, and may never start them. Once ready it stays so: a
// controller may ask for an informer after the manager says that it was started, or when
// the lease is won, and a read of a cache that is not filled waits for it, while a sidecar
// that was told "ready" takes a refusal for an error of the driver.
func (i *Informers) ReadyWith(mgr interface{ Elected() <-chan struct{} }, e Election) func() error {
	var was atomic.Bool
	return func() error {
		if was.Load() {
			return nil
		}
		err := i.Ready()
		select {
		case <-mgr.Elected():
		default:
			if !e.LeaderElect {
				err = cmp.Or(err, errors.New("the controllers are not started yet"))
			}
		}
		if err == nil {
			was.Store(true)
		}
		return err
	}
}

func (i *Informers) start() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.started = true
}

func (i *Informers) add(kind schema.GroupVersionKind, of cache.Informer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, k := range i.known {
		if k.kind == kind {
			return
		}
	}
	i.known = append(i.known, kindInformer{of, kind})
}

// followed is a cache that tells Informers of each informer before it is used.
type followed struct {
	cache.Cache
	informers *Informers
	scheme    *runtime.Scheme
	// noted has the Go types whose informers are known: a read costs one look.
	noted sync.Map
	// indexed has the indexes that were made, by kind and field.
	indexed sync.Map
}

func (f *followed) Start(ctx context.Context) error {
	f.informers.start()
	return f.Cache.Start(ctx)
}

func (f *followed) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := f.note(ctx, o); err != nil {
		return err
	}
	return f.Cache.Get(ctx, key, o, opts...)
}

func (f *followed) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if err := f.note(ctx, l); err != nil {
		return err
	}
	return f.Cache.List(ctx, l, opts...)
}

func (f *followed) GetInformer(ctx context.Context, o client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	if err := f.note(ctx, o); err != nil {
		return nil, err
	}
	return f.Cache.GetInformer(ctx, o, opts...)
}

func (f *followed) GetInformerForKind(ctx context.Context, kind schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	if err := f.noteKind(ctx, kind); err != nil {
		return nil, err
	}
	return f.Cache.GetInformerForKind(ctx, kind, opts...)
}

// IndexField makes an index, unless it is there: packages that look by the same index
// need not know of one another, and a cache has it once.
func (f *followed) IndexField(ctx context.Context, o client.Object, field string, extract client.IndexerFunc) error {
	if err := f.note(ctx, o); err != nil {
		return err
	}
	type index struct {
		kind  reflect.Type
		field string
	}
	if _, is := f.indexed.LoadOrStore(index{reflect.TypeOf(o), field}, true); is {
		return nil
	}
	return f.Cache.IndexField(ctx, o, field, extract)
}

// note makes the informer of an object, or of a list's objects, known. Objects
// without a Go type of their own have informers of their own; Moor reads none.
func (f *followed) note(ctx context.Context, o runtime.Object) error {
	switch o.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return nil
	}
	goType := reflect.TypeOf(o)
	if _, is := f.noted.Load(goType); is {
		return nil
	}
	kind, err := apiutil.GVKForObject(o, f.scheme)
	if err != nil {
		return err
	}
	if _, isList := o.(client.ObjectList); isList {
		kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	}
	if err := f.noteKind(ctx, kind); err != nil {
		return err
	}
	f.noted.Store(goType, true)
	return nil
}

func (f *followed) noteKind(ctx context.Context, kind schema.GroupVersionKind) error {
	of, err := f.Cache.GetInformerForKind(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	f.informers.add(kind, of)
	return nil
}
