package kube

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Awaiter lets callers wait for the state of single objects of one kind,
// woken by the watch behind a cache instead of by polling.
type Awaiter[T client.Object] struct {
	reader client.Reader
	empty  func() T

	mu      sync.Mutex
	waiting map[types.NamespacedName]map[chan struct{}]struct{}
}

// NewAwaiter watches the kind of empty() in c.
func NewAwaiter[T client.Object](ctx context.Context, c cache.Cache, empty func() T) (*Awaiter[T], error) {
	a := &Awaiter[T]{reader: c, empty: empty, waiting: map[types.NamespacedName]map[chan struct{}]struct{}{}}
	informer, err := c.GetInformer(ctx, empty())
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", empty(), err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    a.wake,
		UpdateFunc: func(_, obj any) { a.wake(obj) },
		DeleteFunc: a.wake,
	})
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", empty(), err)
	}
	return a, nil
}

// Await returns as soon as done says so, or with its error. done is given the
// object as the cache shows it and found == false where it does not. When ctx
// ends first, the last object seen comes back with the error of ctx.
func (a *Awaiter[T]) Await(ctx context.Context, key types.NamespacedName, done func(obj T, found bool) (bool, error)) (T, error) {
	woken, forget := a.subscribe(key)
	defer forget()
	for {
		obj := a.empty()
		found, err := Find(ctx, a.reader, key, obj)
		if err != nil {
			return obj, err
		}
		if ok, err := done(obj, found); ok || err != nil {
			return obj, err
		}
		select {
		case <-ctx.Done():
			return obj, ctx.Err()
		case <-woken:
		}
	}
}

func (a *Awaiter[T]) subscribe(key types.NamespacedName) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting[key] == nil {
		a.waiting[key] = map[chan struct{}]struct{}{}
	}
	a.waiting[key][ch] = struct{}{}
	return ch, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.waiting[key], ch)
		if len(a.waiting[key]) == 0 {
			delete(a.waiting, key)
		}
	}
}

func (a *Awaiter[T]) wake(obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for ch := range a.waiting[client.ObjectKeyFromObject(o)] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
