// Package hostclustertest is both clusters in memory, for the tests of hostcluster
// and failover: fake clients that count writes, lose one on demand and show an
// old cache; and a player of the processes of the DPU cluster. Tests
// only.
package hostclustertest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
)

// Where the objects live, and how statuses name the DPU cluster.
const (
	Namespace = "users"
	Target    = "mirrors"
	Cluster   = "dpu-cluster"
)

// ErrLost is the error of a write that LoseWrite names.
var ErrLost = errors.New("connection lost")

// World is the two clusters.
type World struct {
	// Clusters is what reconcilers get.
	Clusters hostcluster.Clusters
	// Host and DPU write and read directly: what tests and players use.
	Host, DPU client.WithWatch

	t    *testing.T
	made map[string]int

	writes atomic.Int64
	lose   int64
	late   bool
	after  func(verb string, o client.Object)
	old    map[string]client.Object
}

// New makes two empty clusters. They have the indexes of index.Host and index.DPU.
func New(t *testing.T) *World {
	t.Helper()
	w := &World{t: t, made: map[string]int{}, old: map[string]client.Object{}}
	host := fake.NewClientBuilder().WithScheme(scheme(t, storagev1alpha1.AddHostToScheme, moorv1alpha1.AddHostToScheme)).
		WithStatusSubresource(&storagev1alpha1.DPUStoragePolicy{}, &storagev1alpha1.DPUStorageVendor{}, &storagev1alpha1.DPUVolume{},
			&storagev1alpha1.DPUVolumeAttachment{}, &moorv1alpha1.DPUStorageNode{}, &moorv1alpha1.DPUVolumeSnapshot{})
	for _, i := range index.Host() {
		host.WithIndex(i.Object, i.Field, i.Extract)
	}
	dpu := fake.NewClientBuilder().WithScheme(scheme(t, storagev1alpha1.AddDPUToScheme, moorv1alpha1.AddDPUToScheme)).
		WithStatusSubresource(&storagev1alpha1.StoragePolicy{}, &storagev1alpha1.Volume{}, &storagev1alpha1.VolumeAttachment{},
			&moorv1alpha1.WriterClaim{}, &moorv1alpha1.DPUStorageNode{}, &moorv1alpha1.StorageSnapshot{})
	stamp := interceptor.Funcs{Create: w.stamp}
	w.Host, w.DPU = interceptor.NewClient(host.Build(), stamp), interceptor.NewClient(dpu.Build(), stamp)
	w.Clusters = hostcluster.Clusters{
		Host:           kube.Cluster{Client: interceptor.NewClient(w.Host, w.funcs()), Live: w.Host},
		DPU:            kube.Cluster{Client: interceptor.NewClient(w.DPU, w.funcs()), Live: w.DPU},
		DPUClusterName: Cluster, Namespace: Namespace, TargetNamespace: Target,
	}
	return w
}

// Writes counts the writes through Clusters so far.
func (w *World) Writes() int { return int(w.writes.Load()) }

// LoseWrite lets the n-th write from now on fail with ErrLost: without effect,
// or, if late, after it took effect.
func (w *World) LoseWrite(n int, late bool) { w.lose, w.late = w.writes.Load()+int64(n), late }

// AfterWrite calls f after every write through Clusters that took effect; of
// writes at the same time, at the same time.
func (w *World) AfterWrite(f func(verb string, o client.Object)) { w.after = f }

// CacheShows lets Clusters read an object as it is given here, from now on.
func (w *World) CacheShows(o client.Object) {
	w.old[key(o, o.GetName())] = o.DeepCopyObject().(client.Object)
}

// CacheHides lets Clusters not find the object, from now on.
func (w *World) CacheHides(o client.Object) { w.old[key(o, o.GetName())] = nil }

// CacheIsCurrent ends CacheShows and CacheHides.
func (w *World) CacheIsCurrent() { clear(w.old) }

// Pass calls the reconciler once for the object name in the users' namespace.
func (w *World) Pass(r reconcile.Reconciler, name string) error {
	w.t.Helper()
	_, err := r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: Namespace, Name: name}})
	return err
}

// MustPass is Pass that must succeed.
func (w *World) MustPass(r reconcile.Reconciler, name string) {
	w.t.Helper()
	if err := w.Pass(r, name); err != nil {
		w.t.Fatalf("reconcile %s: %v", name, err)
	}
}

// scheme has no more kinds than are used: the fake client goes through all of
// them at every write.
func scheme(t *testing.T, add ...func(*runtime.Scheme) error) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, f := range append(add, corev1.AddToScheme, storagev1.AddToScheme) {
		if err := f(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// stamp gives what is made an UID, as an API server does: the kind, the name
// and how often that was made.
func (w *World) stamp(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	k := key(o, o.GetName())
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("%s-%s-%d", reflect.TypeOf(o).Elem().Name(), o.GetName(), w.made[k]+1)))
	}
	err := c.Create(ctx, o, opts...)
	if err == nil {
		w.made[k]++
	}
	return err
}

func key(o client.Object, name string) string { return fmt.Sprintf("%T/%s", o, name) }

// write counts one write and does it, or loses it.
func (w *World) write(verb string, o client.Object, do func() error) error {
	lost := w.writes.Add(1) == w.lose
	if lost && !w.late {
		return ErrLost
	}
	err := do()
	if err == nil && w.after != nil {
		w.after(verb, o)
	}
	if err == nil && lost {
		return ErrLost
	}
	return err
}

func (w *World) get(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	old, behind := w.old[key(o, k.Name)]
	switch {
	case !behind:
		return c.Get(ctx, k, o, opts...)
	case old == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", o)}, k.Name)
	}
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(old.DeepCopyObject()).Elem())
	return nil
}

func (w *World) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Get: w.get,
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return w.write("create", o, func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return w.write("delete", o, func() error { return c.Delete(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return w.write("update", o, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return w.write("patch", o, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return w.write("update status of", o, func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return w.write("patch status of", o, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	}
}
