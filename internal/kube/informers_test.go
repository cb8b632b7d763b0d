package kube

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
)

// silent are informers that have read nothing until a test says so.
type silent struct {
	informertest.FakeInformers
	indexed int
}

func (s *silent) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	s.indexed++
	return nil
}

func (s *silent) GetInformerForKind(_ context.Context, kind schema.GroupVersionKind, _ ...cache.InformerGetOption) (cache.Informer, error) {
	if s.InformersByGVK[kind] == nil {
		s.InformersByGVK[kind] = controllertest.NewFakeInformer()
	}
	return s.InformersByGVK[kind], nil
}

func (s *silent) fill(kind schema.GroupVersionKind) {
	s.InformersByGVK[kind].(*controllertest.FakeInformer).Synced()
}

type manager struct{ elected chan struct{} }

func (m manager) Elected() <-chan struct{} { return m.elected }

// TestReadyNamesTheFirstInformer: whatever makes an informer, it is waited for,
// in the order in which they were made.
func TestReadyNamesTheFirstInformer(t *testing.T) {
	inner := &silent{FakeInformers: informertest.FakeInformers{
		Scheme: clientgoscheme.Scheme, InformersByGVK: map[schema.GroupVersionKind]toolscache.SharedIndexInformer{},
	}}
	informers := &Informers{Cluster: "host cluster"}
	c := &followed{Cache: inner, informers: informers, scheme: clientgoscheme.Scheme}
	ctx, stop := context.WithCancel(t.Context())
	stop() // what is begun ends at once
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(text string) {
		t.Helper()
		got := ""
		if err := informers.Ready(); err != nil {
			got = err.Error()
		}
		if d := cmp.Diff(text, got); d != "" {
			t.Errorf("ready (-want +got):\n%s", d)
		}
	}

	want("the cache of the host cluster is not started yet")
	_ = c.Start(ctx)
	want("") // it has nothing to read
	_, err := c.GetInformer(ctx, &corev1.Node{}, cache.BlockUntilSynced(false))
	check(err)
	check(c.IndexField(ctx, &corev1.Pod{}, "x", nil))
	check(c.IndexField(ctx, &corev1.Pod{}, "x", nil)) // is there already
	check(c.IndexField(ctx, &corev1.Pod{}, "y", nil))
	check(c.IndexField(ctx, &corev1.Node{}, "x", nil))
	check(c.List(ctx, &storagev1.StorageClassList{}))
	_ = c.Get(ctx, client.ObjectKey{Name: "n"}, &storagev1.CSINode{})
	_, err = c.GetInformerForKind(ctx, corev1.SchemeGroupVersion.WithKind("Secret"), cache.BlockUntilSynced(false))
	check(err)
	check(c.List(ctx, &corev1.NodeList{})) // known already
	check(Hold(ctx, c, &corev1.ConfigMap{}, &corev1.Node{}))
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Node"), corev1.SchemeGroupVersion.WithKind("Pod"),
		storagev1.SchemeGroupVersion.WithKind("StorageClass"), storagev1.SchemeGroupVersion.WithKind("CSINode"),
		corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	} {
		want("the cache of " + kind.GroupKind().String() + " of the host cluster is not filled yet")
		inner.fill(kind)
	}
	want("")
	mgr := manager{elected: make(chan struct{})}
	ready, standby := informers.ReadyWith(mgr, Election{}), informers.ReadyWith(mgr, Election{LeaderElect: true})
	if err := ready(); err == nil {
		t.Error("ready before the controllers, which ask for informers, are started")
	}
	check(standby())
	close(mgr.elected)
	check(ready())
	_, err = c.GetInformer(ctx, &corev1.Event{}, cache.BlockUntilSynced(false))
	check(err)
	want("the cache of Event of the host cluster is not filled yet")
	if err := errors.Join(ready(), standby()); err != nil {
		t.Errorf("was ready, and is so no more: %v", err)
	}
	if err := informers.ReadyWith(mgr, Election{LeaderElect: true})(); err == nil {
		t.Error("one that waits for its lease is ready before its caches are filled")
	}
	if inner.indexed != 3 {
		t.Errorf("%d indexes were made, want 3", inner.indexed)
	}
}
