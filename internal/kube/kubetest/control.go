package kubetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// ErrLost is the error of a write that LoseWrite names.
var ErrLost = errors.New("connection lost")

// Begin is the time on the Clock of a new cluster.
var Begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Control is what a test steers and counts of what reconcilers do.
type Control struct {
	// Clock is for the reconcilers under test. What they create is stamped by it.
	Clock *clocktesting.FakePassiveClock
	// Recorder takes the events of the reconcilers under test.
	Recorder *record.FakeRecorder

	mu     sync.Mutex
	made   map[string]int // how often an object was made, by kind and name
	counts map[string]int // writes, by kind
	writes int
	reads  int // of the API servers themselves
	lose   int
	late   bool
	after  func(verb string, o client.Object)
	old    map[string]client.Object
	lists  map[string]client.ObjectList

	indexes map[string]client.IndexerFunc // of the caches, by kind and field
}

func newControl() *Control {
	return &Control{
		Clock: clocktesting.NewFakePassiveClock(Begin), Recorder: record.NewFakeRecorder(1000),
		made: map[string]int{}, counts: map[string]int{}, old: map[string]client.Object{}, lists: map[string]client.ObjectList{},
		indexes: map[string]client.IndexerFunc{},
	}
}

// Step moves the clock on.
func (c *Control) Step(d time.Duration) { c.Clock.SetTime(c.Clock.Now().Add(d)) }

// Events are the events since the last call.
func (c *Control) Events() []string {
	var out []string
	for {
		select {
		case e := <-c.Recorder.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

// Reasons are the reasons of the events since the last call, one after another.
func (c *Control) Reasons() string {
	var out []string
	for _, e := range c.Events() {
		out = append(out, strings.Fields(e)[1])
	}
	return strings.Join(out, " ")
}

// Writes counts the writes of reconcilers so far.
func (c *Control) Writes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

// WritesOn counts the writes of reconcilers on one kind so far, its status included.
func (c *Control) WritesOn(kind client.Object) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[kindOf(kind)]
}

// LiveReads counts the reads of reconcilers that no cache answered, so far.
func (c *Control) LiveReads() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}

// LoseWrite lets the n-th write from now on fail with ErrLost: without effect,
// or, if late, after it took effect.
func (c *Control) LoseWrite(n int, late bool) { c.lose, c.late = c.Writes()+n, late }

// AfterWrite calls f after every write of a reconciler that took effect; of writes at
// the same time, at the same time.
func (c *Control) AfterWrite(f func(verb string, o client.Object)) { c.after = f }

// CacheShows lets reconcilers read an object as it is given here, from now on.
func (c *Control) CacheShows(o client.Object) {
	c.old[key(o, o.GetName())] = o.DeepCopyObject().(client.Object)
}

// CacheHides lets reconcilers not find the object, from now on.
func (c *Control) CacheHides(o client.Object) { c.old[key(o, o.GetName())] = nil }

// CacheLists lets reconcilers list a kind as it is given here, from now on, selected as they ask.
func (c *Control) CacheLists(l client.ObjectList) {
	c.lists[fmt.Sprintf("%T", l)] = l.DeepCopyObject().(client.ObjectList)
}

// CacheIsCurrent ends CacheShows, CacheHides and CacheLists.
func (c *Control) CacheIsCurrent() { clear(c.old); clear(c.lists) }

// stamp gives what is made an UID, as an API server does: the kind, the name
// and how often that was made.
func (c *Control) stamp(ctx context.Context, to client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	k := key(o, o.GetName())
	c.mu.Lock()
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("%s-%s-%d", kindOf(o), o.GetName(), c.made[k]+1)))
	}
	c.mu.Unlock()
	err := to.Create(ctx, o, opts...)
	if err == nil {
		c.mu.Lock()
		c.made[k]++
		c.mu.Unlock()
	}
	return err
}

// sameUID refuses a merge patch that names the UID of another object, as an API
// server does.
func sameUID(ctx context.Context, to client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if p.Type() != types.MergePatchType {
		return to.Patch(ctx, o, p, opts...)
	}
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	var patch metav1.PartialObjectMetadata
	if err := json.Unmarshal(data, &patch); err != nil {
		return err
	}
	have := o.DeepCopyObject().(client.Object)
	if err := to.Get(ctx, client.ObjectKeyFromObject(o), have); err != nil {
		return err
	}
	if patch.UID != "" && patch.UID != have.GetUID() {
		return apierrors.NewInvalid(schema.GroupKind{Kind: kindOf(o)}, o.GetName(), field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), patch.UID, "field is immutable"),
		})
	}
	return to.Patch(ctx, o, p, opts...)
}

func kindOf(o client.Object) string { return reflect.TypeOf(o).Elem().Name() }

func key(o client.Object, name string) string { return fmt.Sprintf("%T/%s", o, name) }

// write counts one write and does it, or loses it.
func (c *Control) write(verb string, o client.Object, do func() error) error {
	c.mu.Lock()
	c.writes++
	c.counts[kindOf(o)]++
	lost := c.writes == c.lose
	c.mu.Unlock()
	if lost && !c.late {
		return ErrLost
	}
	err := do()
	if err == nil && c.after != nil {
		c.after(verb, o)
	}
	if err == nil && lost {
		return ErrLost
	}
	return err
}

// cutBy is what caches keep of an object: reconcilers see no more of it.
func cutBy(cut []toolscache.TransformFunc, o runtime.Object) (runtime.Object, error) {
	for _, f := range cut {
		slim, err := f(o)
		if err != nil {
			return o, err
		}
		o = slim.(runtime.Object)
	}
	return o, nil
}

func (c *Control) get(ctx context.Context, from client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	old, behind := c.old[key(o, k.Name)]
	switch {
	case !behind:
		return from.Get(ctx, k, o, opts...)
	case old == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", o)}, k.Name)
	}
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(old.DeepCopyObject()).Elem())
	return nil
}

func (c *Control) list(ctx context.Context, from client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
	old, behind := c.lists[fmt.Sprintf("%T", l)]
	if !behind {
		return from.List(ctx, l, opts...)
	}
	reflect.ValueOf(l).Elem().Set(reflect.ValueOf(old.DeepCopyObject()).Elem())
	items, err := meta.ExtractList(l)
	if err != nil {
		return err
	}
	var o client.ListOptions
	o.ApplyOptions(opts)
	var out []runtime.Object
	for _, item := range items {
		ok, err := c.selects(&o, item.(client.Object))
		if err != nil {
			return err
		}
		if ok {
			out = append(out, item)
		}
	}
	return meta.SetList(l, out)
}

// selects reports whether a cache that is asked with these options lists an object. A field
// is one of the cache's indexes.
func (c *Control) selects(o *client.ListOptions, object client.Object) (bool, error) {
	if o.Namespace != "" && o.Namespace != object.GetNamespace() {
		return false, nil
	}
	if o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(object.GetLabels())) {
		return false, nil
	}
	if o.FieldSelector == nil {
		return true, nil
	}
	for _, r := range o.FieldSelector.Requirements() {
		extract := c.indexes[indexKey(object, r.Field)]
		if extract == nil {
			return false, fmt.Errorf("list %T by %s: there is no such index", object, r.Field)
		}
		if !slices.Contains(extract(object), r.Value) {
			return false, nil
		}
	}
	return true, nil
}

func indexKey(o client.Object, field string) string { return fmt.Sprintf("%T by %s", o, field) }

// liveRead counts one read of an API server itself.
func (c *Control) liveRead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
}

// liveFuncs count what is read of an API server itself.
func (c *Control) liveFuncs() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, from client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			c.liveRead()
			return from.Get(ctx, k, o, opts...)
		},
		List: func(ctx context.Context, from client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			c.liveRead()
			return from.List(ctx, l, opts...)
		},
	}
}

func (c *Control) funcs(cut []toolscache.TransformFunc) interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, from client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := c.get(ctx, from, k, o, opts...); err != nil {
				return err
			}
			slim, err := cutBy(cut, o)
			reflect.ValueOf(o).Elem().Set(reflect.ValueOf(slim).Elem())
			return err
		},
		List: func(ctx context.Context, from client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if err := c.list(ctx, from, l, opts...); err != nil {
				return err
			}
			items, err := meta.ExtractList(l)
			for i := range items {
				var lost error
				items[i], lost = cutBy(cut, items[i])
				err = errors.Join(err, lost)
			}
			return errors.Join(err, meta.SetList(l, items))
		},
		Create: func(ctx context.Context, to client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return c.write("create", o, func() error {
				o.SetCreationTimestamp(metav1.NewTime(c.Clock.Now().Truncate(time.Second))) // as coarse as a server's
				return to.Create(ctx, o, opts...)
			})
		},
		Delete: func(ctx context.Context, to client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return c.write("delete", o, func() error { return to.Delete(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, to client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return c.write("update", o, func() error { return to.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, to client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return c.write("patch", o, func() error { return to.Patch(ctx, o, p, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, to client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return c.write("update status of", o, func() error { return to.SubResource(sub).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, to client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return c.write("patch status of", o, func() error { return to.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	}
}
