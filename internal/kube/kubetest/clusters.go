// Package kubetest is the host cluster and the DPU cluster in memory, for tests:
// fake clients with the real field indexes, a clock, a recorder, a count of
// writes, a write that is lost on demand, an old cache, and builders of objects.
package kubetest

import (
	"testing"

	groupsnapshotv1beta2 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta2"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// Where Moor's objects are, and how statuses name the DPU cluster.
const (
	HostNamespace  = "users"
	DPUNamespace   = "dpf-operator-system"
	DPUClusterName = "dpu-cluster"
)

// Cluster is one cluster in memory.
type Cluster struct {
	// Cluster is what reconcilers get. Control sees what goes through its Client;
	// Live reads what is there.
	kube.Cluster
	*Control
	// Direct reads and writes what is there, past Control: what tests use, and
	// what plays other processes.
	Direct client.WithWatch

	namespace string
	t         *testing.T
}

// Clusters are the two clusters. They share one Control.
type Clusters struct {
	*Control
	Host, DPU *Cluster
}

// New makes two empty clusters, with the indexes of snap-host-controller, and of
// snap-controller and snap-external-attacher.
func New(t *testing.T) *Clusters {
	t.Helper()
	c := newControl()
	return &Clusters{Control: c, Host: newHost(t, c, index.Host(), hostCuts), DPU: newDPU(t, c)}
}

// NewHost makes an empty host cluster with these indexes, and what the cache of
// snap-csi-plugin (controller) keeps of objects.
func NewHost(t *testing.T, indexes []kube.Index) *Cluster {
	t.Helper()
	return newHost(t, newControl(), indexes, replicaCuts)
}

// NewDPU makes an empty DPU cluster, with the indexes of snap-controller and of
// snap-external-attacher.
func NewDPU(t *testing.T) *Cluster {
	t.Helper()
	return newDPU(t, newControl())
}

// Reconcile calls a reconciler once for an object of Moor's in the host cluster.
func (c *Clusters) Reconcile(r reconcile.Reconciler, name string) error {
	c.Host.t.Helper()
	_, err := r.Reconcile(c.Host.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: HostNamespace, Name: name}})
	return err
}

// MustReconcile is Reconcile that must succeed.
func (c *Clusters) MustReconcile(r reconcile.Reconciler, name string) {
	c.Host.t.Helper()
	if err := c.Reconcile(r, name); err != nil {
		c.Host.t.Fatalf("reconcile %s: %v", name, err)
	}
}

// What the caches of snap-host-controller, of snap-csi-plugin (controller) and of the
// programs of the DPU cluster cut away, which reconcilers do not see here either.
var (
	hostCuts    = []toolscache.TransformFunc{kube.SlimNode, podvolume.SlimUser, podvolume.SlimClaim, podvolume.SlimPersistentVolume}
	replicaCuts = []toolscache.TransformFunc{kube.SlimNode, podvolume.SlimPod, podvolume.SlimPersistentVolume}
	dpuCuts     = []toolscache.TransformFunc{kube.SlimNode}
)

// The schemes have no more kinds than are used: the fake client goes through all of
// them at every write.

func newHost(t *testing.T, c *Control, indexes []kube.Index, cuts []toolscache.TransformFunc) *Cluster {
	t.Helper()
	s := scheme(t, storagev1alpha1.AddHostToScheme, moorv1alpha1.AddHostToScheme, coordinationv1.AddToScheme)
	out := newCluster(t, c, indexes, fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(
		&storagev1alpha1.DPUStoragePolicy{}, &storagev1alpha1.DPUStorageVendor{}, &storagev1alpha1.DPUVolume{},
		&storagev1alpha1.DPUVolumeAttachment{}, &moorv1alpha1.DPUStorageNode{}, &moorv1alpha1.DPUVolumeSnapshot{}, &moorv1alpha1.PowerControl{}), cuts)
	out.namespace = HostNamespace
	return out
}

func newDPU(t *testing.T, c *Control) *Cluster {
	t.Helper()
	s := scheme(t, storagev1alpha1.AddDPUToScheme, moorv1alpha1.AddDPUToScheme, coordinationv1.AddToScheme, snapshotv1.AddToScheme, groupsnapshotv1beta2.AddToScheme)
	out := newCluster(t, c, append(index.DPU(), index.Attacher()...), fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(
		&storagev1alpha1.StoragePolicy{}, &storagev1alpha1.Volume{}, &storagev1alpha1.VolumeAttachment{}, &storagev1alpha1.SVVolumeAttachment{},
		&moorv1alpha1.WriterClaim{}, &moorv1alpha1.DPUStorageNode{}, &moorv1alpha1.StorageSnapshot{},
		&snapshotv1.VolumeSnapshot{}, &groupsnapshotv1beta2.VolumeGroupSnapshot{}), dpuCuts)
	out.namespace = DPUNamespace
	return out
}

func scheme(t *testing.T, add ...func(*runtime.Scheme) error) *runtime.Scheme {
	t.Helper()
	s, err := kube.NewScheme(append(add, corev1.AddToScheme, storagev1.AddToScheme)...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newCluster(t *testing.T, c *Control, indexes []kube.Index, b *fake.ClientBuilder, cuts []toolscache.TransformFunc) *Cluster {
	for _, i := range indexes {
		b.WithIndex(i.Object, i.Field, i.Extract)
		c.indexes[indexKey(i.Object, i.Field)] = i.Extract
	}
	direct := interceptor.NewClient(b.Build(), interceptor.Funcs{Create: c.stamp, Patch: sameUID})
	return &Cluster{
		Cluster: kube.Cluster{Client: interceptor.NewClient(direct, c.funcs(cuts)), Live: interceptor.NewClient(direct, c.liveFuncs())},
		Control: c, Direct: direct, t: t,
	}
}

// Add makes objects, with their status.
func (c *Cluster) Add(objects ...client.Object) {
	c.t.Helper()
	for _, o := range objects {
		if o.GetGeneration() == 0 {
			o.SetGeneration(1)
		}
		if err := c.Direct.Create(c.t.Context(), o); err != nil {
			c.t.Fatalf("make %T %s: %v", o, o.GetName(), err)
		}
	}
}

// Remove deletes objects, which must exist.
func (c *Cluster) Remove(objects ...client.Object) {
	c.t.Helper()
	for _, o := range objects {
		if err := c.Direct.Delete(c.t.Context(), o); err != nil {
			c.t.Fatalf("remove %T %s: %v", o, o.GetName(), err)
		}
	}
}

// Has reads an object by name and reports whether it exists: in the namespace of
// Moor's objects, or in none if its kind has none.
func (c *Cluster) Has(o client.Object, name string) bool {
	c.t.Helper()
	o.SetName(name)
	switch o.(type) {
	case *corev1.Node, *corev1.PersistentVolume, *storagev1.StorageClass, *storagev1.VolumeAttributesClass, *storagev1.CSIDriver, *snapshotv1.VolumeSnapshotClass, *moorv1alpha1.DPUStorageNode:
	default:
		o.SetNamespace(c.namespace)
	}
	_, found := Read(c, o)
	return found
}

// Get is Has for an object that must exist.
func (c *Cluster) Get(o client.Object, name string) {
	c.t.Helper()
	if !c.Has(o, name) {
		c.t.Fatalf("%T %s does not exist", o, name)
	}
}

// Read reads an object; found is false if it does not exist.
func Read[T client.Object](c *Cluster, o T) (got T, found bool) {
	c.t.Helper()
	err := c.Direct.Get(c.t.Context(), client.ObjectKeyFromObject(o), o)
	if err != nil && !apierrors.IsNotFound(err) {
		c.t.Fatal(err)
	}
	return o, err == nil
}

// Change reads an object, changes it and writes it and its status.
func Change[T client.Object](c *Cluster, o T, change func(T)) {
	c.t.Helper()
	if _, found := Read(c, o); !found {
		c.t.Fatalf("change %T %s: it does not exist", o, o.GetName())
	}
	before := o.DeepCopyObject().(T)
	change(o)
	want := o.DeepCopyObject().(T)
	if err := c.Direct.Patch(c.t.Context(), o, client.MergeFrom(before)); err != nil {
		c.t.Fatalf("change %T %s: %v", o, o.GetName(), err)
	}
	if len(o.GetFinalizers()) == 0 && !o.GetDeletionTimestamp().IsZero() {
		return // it is gone
	}
	want.SetResourceVersion(o.GetResourceVersion())
	if err := c.Direct.Status().Update(c.t.Context(), want); client.IgnoreNotFound(err) != nil {
		c.t.Fatalf("change status of %T %s: %v", o, o.GetName(), err)
	}
}
