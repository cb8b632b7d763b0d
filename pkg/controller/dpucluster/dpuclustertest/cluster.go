// Package dpuclustertest is a DPU cluster for tests: the fake client with the
// real indexes, a count of writes, a write that fails on demand, and the
// objects that every test needs.
package dpuclustertest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	groupsnapshotv1beta2 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta2"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/pkg/controller/dpucluster"
)

// Namespace is where the objects of a test live.
const Namespace = "dpf-operator-system"

// ErrLost is the error of a write that FailWrite lets fail.
var ErrLost = errors.New("connection lost")

// Cluster is a DPU cluster in memory.
type Cluster struct {
	// Client is what the reconcilers under test get: it counts writes, and
	// its reads may be behind.
	Client client.Client
	// Live reads what is really there.
	Live client.Reader
	// Now stamps what is created through Client.
	Now    func() time.Time
	raw    client.WithWatch
	t      *testing.T
	writes atomic.Int64
	failAt atomic.Int64
	onKind map[string]int
	old    map[string]client.Object
}

// NewCluster makes an empty cluster.
func NewCluster(t *testing.T) *Cluster {
	t.Helper()
	scheme, err := dpucluster.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(
		&storagev1alpha1.StoragePolicy{}, &storagev1alpha1.Volume{},
		&storagev1alpha1.VolumeAttachment{}, &storagev1alpha1.SVVolumeAttachment{},
		&moorv1alpha1.StorageSnapshot{}, &snapshotv1.VolumeSnapshot{}, &groupsnapshotv1beta2.VolumeGroupSnapshot{})
	for _, i := range index.DPU() {
		b = b.WithIndex(i.Object, i.Field, i.Extract)
	}
	c := &Cluster{raw: b.Build(), t: t, Now: time.Now, onKind: map[string]int{}, old: map[string]client.Object{}}
	c.Live = c.raw
	c.Client = interceptor.NewClient(c.raw, c.interceptor())
	return c
}

// Writes counts the writes through Client so far.
func (c *Cluster) Writes() int { return int(c.writes.Load()) }

// WritesOn counts the writes through Client on one kind, its status included.
func (c *Cluster) WritesOn(kind client.Object) int { return c.onKind[kindOf(kind)] }

// FailWrite lets the n-th write from now on fail with ErrLost, without effect.
func (c *Cluster) FailWrite(n int) { c.failAt.Store(c.writes.Load() + int64(n)) }

// CacheIsBehind lets Client read obj from now on as it is given here; with
// exists false, as if it were not there yet.
func (c *Cluster) CacheIsBehind(obj client.Object, exists bool) {
	c.old[fmt.Sprintf("%T/%s", obj, obj.GetName())] = nil
	if exists {
		c.old[fmt.Sprintf("%T/%s", obj, obj.GetName())] = obj.DeepCopyObject().(client.Object)
	}
}

// CacheIsCurrent ends CacheIsBehind.
func (c *Cluster) CacheIsCurrent() { clear(c.old) }

func (c *Cluster) read(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	old, behind := c.old[fmt.Sprintf("%T/%s", o, key.Name)]
	switch {
	case !behind:
		return w.Get(ctx, key, o, opts...)
	case old == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", o)}, key.Name)
	}
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(old.DeepCopyObject()).Elem())
	return nil
}

func (c *Cluster) write(obj client.Object) error {
	c.onKind[kindOf(obj)]++
	if c.writes.Add(1) == c.failAt.Load() {
		return ErrLost
	}
	return nil
}

func (c *Cluster) interceptor() interceptor.Funcs {
	return interceptor.Funcs{
		Get: c.read,
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := c.write(o); err != nil {
				return err
			}
			o.SetCreationTimestamp(metav1.NewTime(c.Now().Truncate(time.Second))) // as coarse as a server's
			return w.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := c.write(o); err != nil {
				return err
			}
			return w.Delete(ctx, o, opts...)
		},
		Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := c.write(o); err != nil {
				return err
			}
			return w.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := c.write(o); err != nil {
				return err
			}
			return w.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := c.write(o); err != nil {
				return err
			}
			return w.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}
}

// Add creates objects, past the count of writes.
func (c *Cluster) Add(objs ...client.Object) {
	c.t.Helper()
	for _, o := range objs {
		if err := c.raw.Create(c.t.Context(), o); err != nil {
			c.t.Fatalf("add %s: %v", o.GetName(), err)
		}
	}
}

// Remove deletes objects, past the count of writes.
func (c *Cluster) Remove(objs ...client.Object) {
	c.t.Helper()
	for _, o := range objs {
		if err := c.raw.Delete(c.t.Context(), o); err != nil {
			c.t.Fatalf("remove %s: %v", o.GetName(), err)
		}
	}
}

// Get reads an object by name from Namespace, or from no namespace.
func (c *Cluster) Get(obj client.Object, name string) {
	c.t.Helper()
	if !c.Has(obj, name) {
		c.t.Fatalf("%T %s does not exist", obj, name)
	}
}

// Has reads an object like Get and reports whether it exists.
func (c *Cluster) Has(obj client.Object, name string) bool {
	c.t.Helper()
	key := types.NamespacedName{Namespace: Namespace, Name: name}
	switch obj.(type) {
	case *corev1.PersistentVolume, *storagev1.StorageClass, *storagev1.CSIDriver, *snapshotv1.VolumeSnapshotClass:
		key.Namespace = ""
	}
	err := c.raw.Get(c.t.Context(), key, obj)
	if client.IgnoreNotFound(err) != nil {
		c.t.Fatal(err)
	}
	return err == nil
}

// Change reads an object by name, lets change alter it, and writes it and its
// status, past the count of writes.
func Change[T client.Object](c *Cluster, obj T, name string, change func(T)) {
	c.t.Helper()
	c.Get(obj, name)
	change(obj)
	status := obj.DeepCopyObject().(T)
	if err := c.raw.Update(c.t.Context(), obj); err != nil {
		c.t.Fatalf("change %s: %v", name, err)
	}
	status.SetResourceVersion(obj.GetResourceVersion())
	if len(obj.GetFinalizers()) == 0 && obj.GetDeletionTimestamp() != nil {
		return // this change was the end of it
	}
	if err := c.raw.Status().Update(c.t.Context(), status); client.IgnoreNotFound(err) != nil {
		c.t.Fatalf("change status of %s: %v", name, err)
	}
}

func kindOf(obj client.Object) string {
	switch obj.(type) {
	case *storagev1alpha1.Volume:
		return "Volume"
	case *storagev1alpha1.VolumeAttachment:
		return "VolumeAttachment"
	}
	return "other"
}
