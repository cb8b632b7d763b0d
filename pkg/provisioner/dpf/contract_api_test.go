//go:build api

package dpf_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
	"github.com/moor-storage/moor/test/api/apiserver"
)

var clusters apiserver.Clusters

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m, &clusters)) }

func TestVolumesContract(t *testing.T) {
	provisionertest.TestVolumes(t, func(t *testing.T) provisioner.Volumes {
		return onServer(t, player{}).Volumes
	})
}

func TestAttachmentsContract(t *testing.T) {
	knowNodes(t)
	provisionertest.TestAttachments(t, func(t *testing.T) (provisioner.Volumes, provisioner.Attachments) {
		p := onServer(t, player{})
		return p.Volumes, p.Attachments
	})
}

func TestDataContract(t *testing.T) {
	knowNodes(t)
	open := func(t *testing.T) provisionertest.DataUnderTest {
		return provisionertest.DataUnderTest{Platform: onServer(t, player{})}
	}
	provisionertest.TestSnapshots(t, open)
	provisionertest.TestInventory(t, open)
}

func knowNodes(t *testing.T) {
	t.Helper()
	for _, node := range []string{provisionertest.NodeA, provisionertest.NodeB} {
		known := &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: moorv1alpha1.DPUStorageNodeSpec{DPUName: "dpu-" + node}}
		if err := clusters.Host.Create(t.Context(), known); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := clusters.Host.Delete(context.Background(), known); err != nil {
				t.Error(err)
			}
		})
	}
}

var namespaces atomic.Int64

// withPolicy makes every volume under a policy, as a StorageClass does.
type withPolicy struct{ provisioner.Volumes }

func (v withPolicy) Create(ctx context.Context, spec provisioner.VolumeSpec) (provisioner.Volume, error) {
	spec.Parameters = map[string]string{storagev1alpha1.ParameterPolicy: "policy"}
	return v.Volumes.Create(ctx, spec)
}

// copiesWithPolicy is withPolicy for copies.
type copiesWithPolicy struct{ provisioner.Copies }

func (c copiesWithPolicy) CreateFrom(ctx context.Context, spec provisioner.VolumeSpec, source provisioner.Source) (provisioner.Volume, error) {
	spec.Parameters = map[string]string{storagev1alpha1.ParameterPolicy: "policy"}
	return c.Copies.CreateFrom(ctx, spec, source)
}

// onServer is a platform in a namespace of its own, with p behind it.
func onServer(t *testing.T, p player) provisioner.Platform {
	t.Helper()
	namespace := fmt.Sprintf("dpf-%d", namespaces.Add(1))
	if err := clusters.Host.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
	scheme := clusters.Host.Scheme()
	watched, err := cache.New(clusters.HostConfig, cache.Options{Scheme: scheme, DefaultNamespaces: map[string]cache.Config{namespace: {}}})
	if err != nil {
		t.Fatal(err)
	}
	cached, err := client.New(clusters.HostConfig, client.Options{Scheme: scheme, Cache: &client.CacheOptions{Reader: watched}})
	if err != nil {
		t.Fatal(err)
	}
	tellsRoom(t, namespace)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	platform, err := dpf.Platform(ctx, request.Options{Client: cached, Cache: watched, Namespace: namespace, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- watched.Start(ctx) }()
	p.c, p.namespace = clusters.Host, namespace
	go func() { ended <- p.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("behind the platform: %v", err)
			}
		}
	})
	if !watched.WaitForCacheSync(ctx) {
		t.Fatal("the cache never came")
	}
	platform.Volumes, platform.Copies = withPolicy{platform.Volumes}, copiesWithPolicy{platform.Copies}
	return platform
}

// tellsRoom makes the policy of all volumes, whose vendors tell how much room
// they have.
func tellsRoom(t *testing.T, namespace string) {
	t.Helper()
	policy := &storagev1alpha1.DPUStoragePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "policy"},
		Spec:       storagev1alpha1.DPUStoragePolicySpec{DPUStorageVendors: []string{"vendor"}},
	}
	if err := clusters.Host.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	policy.Status.Capacity = &storagev1alpha1.PolicyCapacity{Available: resource.MustParse("1Ti")}
	if err := clusters.Host.Status().Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
}

// player does what the controllers behind the objects do.
type player struct {
	// idle leaves volumes unbound, with words; begun, with a vendor chosen.
	idle  bool
	begun bool
	// stuck gives a volume no other size than its first; refuses says so.
	stuck, refuses bool
	// places are from where volumes are reached; one that is wanted from others
	// only is not bound.
	places    []map[string]string
	c         client.WithWatch
	namespace string
}

// run acts after every change of a volume or an attachment until ctx ends.
func (p player) run(ctx context.Context) error {
	volumes, err := p.c.Watch(ctx, &storagev1alpha1.DPUVolumeList{}, client.InNamespace(p.namespace))
	if err != nil {
		return err
	}
	defer volumes.Stop()
	attachments, err := p.c.Watch(ctx, &storagev1alpha1.DPUVolumeAttachmentList{}, client.InNamespace(p.namespace))
	if err != nil {
		return err
	}
	defer attachments.Stop()
	snapshots, err := p.c.Watch(ctx, &moorv1alpha1.DPUVolumeSnapshotList{}, client.InNamespace(p.namespace))
	if err != nil {
		return err
	}
	defer snapshots.Stop()
	for {
		var e watch.Event
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e = <-volumes.ResultChan():
		case e = <-attachments.ResultChan():
		case e = <-snapshots.ResultChan():
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if e.Object == nil || e.Type == watch.Error {
			return fmt.Errorf("watch ended: %+v", e)
		}
		if err := p.act(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func (p player) act(ctx context.Context) error {
	var attachments storagev1alpha1.DPUVolumeAttachmentList
	var volumes storagev1alpha1.DPUVolumeList
	for _, list := range []client.ObjectList{&volumes, &attachments} {
		if err := p.c.List(ctx, list, client.InNamespace(p.namespace)); err != nil {
			return err
		}
	}
	single, holder := map[string]bool{}, map[string]string{}
	for i := range volumes.Items {
		single[volumes.Items[i].Name] = slices.Contains(volumes.Items[i].Spec.AccessModes, corev1.ReadWriteOnce)
	}
	for i := range attachments.Items {
		if a := &attachments.Items[i]; shown(a) {
			holder[a.Spec.DPUVolumeName] = a.Name
		}
	}
	used := map[string]bool{}
	for i := range attachments.Items {
		a := &attachments.Items[i]
		used[a.Spec.DPUVolumeName] = true
		if h := holder[a.Spec.DPUVolumeName]; h != "" && h != a.Name && single[a.Spec.DPUVolumeName] && a.DeletionTimestamp.IsZero() {
			continue
		}
		if err := p.attachment(ctx, a); err != nil {
			return err
		}
		if shown(a) {
			holder[a.Spec.DPUVolumeName] = a.Name
		}
	}
	for i := range volumes.Items {
		if err := p.volume(ctx, &volumes.Items[i], used[volumes.Items[i].Name]); err != nil {
			return err
		}
	}
	return p.snapshots(ctx, volumes.Items)
}

func (p player) attachment(ctx context.Context, a *storagev1alpha1.DPUVolumeAttachment) error {
	if !a.DeletionTimestamp.IsZero() {
		return kube.RemoveFinalizers(ctx, p.c, a, storagev1alpha1.FinalizerDPUVolumeAttachment)
	}
	if _, err := kube.Patch(ctx, p.c, a, func(a *storagev1alpha1.DPUVolumeAttachment) {
		controllerutil.AddFinalizer(a, storagev1alpha1.FinalizerDPUVolumeAttachment)
	}); err != nil {
		return client.IgnoreNotFound(err)
	}
	_, err := kube.PatchStatus(ctx, p.c, a, func(a *storagev1alpha1.DPUVolumeAttachment) {
		yes := true
		a.Status.ControllerAttached, a.Status.DPUAttached = &yes, &yes
		a.Status.DPU = &storagev1alpha1.AttachedDPU{PCIAddress: "3b:00.2", NVMeAttrs: &storagev1alpha1.NVMeAttrs{NamespaceID: 1}}
	})
	return client.IgnoreNotFound(err)
}

func (p player) volume(ctx context.Context, v *storagev1alpha1.DPUVolume, used bool) error {
	if !v.DeletionTimestamp.IsZero() {
		if used {
			return nil
		}
		return kube.RemoveFinalizers(ctx, p.c, v, storagev1alpha1.FinalizerDPUVolume)
	}
	if _, err := kube.Patch(ctx, p.c, v, func(v *storagev1alpha1.DPUVolume) {
		controllerutil.AddFinalizer(v, storagev1alpha1.FinalizerDPUVolume)
	}); err != nil {
		return client.IgnoreNotFound(err)
	}
	size := v.Spec.Resources.Requests[corev1.ResourceStorage]
	if size.IsZero() {
		size = resource.MustParse("1Mi")
	}
	_, err := kube.PatchStatus(ctx, p.c, v, func(v *storagev1alpha1.DPUVolume) {
		if p.idle {
			conditions := kube.Conditions{List: &v.Status.Conditions, Generation: v.Generation}
			conditions.False(storagev1alpha1.ConditionReady, storagev1alpha1.ReasonPending, "the array is full")
			if p.begun {
				conditions.True(storagev1alpha1.ConditionScheduled)
			}
			return
		}
		if p.stuck && v.Status.Phase == storagev1alpha1.DPUVolumeBound {
			p.tellStuck(v)
			return
		}
		if p.elsewhere(v) {
			return
		}
		v.Status.Phase = storagev1alpha1.DPUVolumeBound
		v.Status.State = &storagev1alpha1.DPUVolumeState{
			SelectedDPUStorageVendorName: "vendor", StorageVendorPluginName: "plugin",
			VolumeInfo: &storagev1alpha1.VolumeInfo{
				Capacity:          corev1.ResourceList{corev1.ResourceStorage: size},
				MutableParameters: modify(v), AccessibleTopology: p.places,
			},
		}
	})
	return client.IgnoreNotFound(err)
}

// TestDeadlineWords: who waits in vain is told what the controllers said. A
// request for which nothing was begun is taken back, and nothing is left of it;
// where a vendor was chosen, a volume may come yet, and the outcome is open.
func TestDeadlineWords(t *testing.T) {
	const full = "create volume v: context deadline exceeded: the array is full"
	for name, c := range map[string]struct {
		begun bool
		is    error
		words string
		left  bool
	}{
		"nothing was begun":   {false, provisioner.ErrPrecondition, "precondition failed; the request was taken back: " + full, false},
		"a vendor was chosen": {true, context.DeadlineExceeded, full, true},
	} {
		t.Run(name, func(t *testing.T) {
			volumes := onServer(t, player{idle: true, begun: c.begun}).Volumes
			_, err := volumes.Create(t.Context(), provisioner.VolumeSpec{Name: "v", CapacityBytes: 1 << 20, Mode: provisioner.Block, AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce}})
			if !errors.Is(err, c.is) || provisioner.Uncertain(err) != c.left {
				t.Errorf("got %v, want %v, uncertain: %t", err, c.is, c.left)
			}
			if err == nil || err.Error() != c.words {
				t.Errorf("got %q, want %q", err, c.words)
			}
			if _, err := volumes.Get(t.Context(), "v"); (err == nil) != c.left {
				t.Errorf("read afterwards: %v, want it left: %t", err, c.left)
			}
		})
	}
}

func shown(a *storagev1alpha1.DPUVolumeAttachment) bool {
	return a.Status.DPUAttached != nil && *a.Status.DPUAttached
}
