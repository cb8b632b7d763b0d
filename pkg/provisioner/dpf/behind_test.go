package dpf

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
)

// behind is the platform of a process whose cache shows nothing of what another one has made
// a moment ago, and that cache's informers.
func behind(t *testing.T, h *hostCluster, wait time.Duration) (provisioner.Platform, *informertest.FakeInformers) {
	t.Helper()
	empty := newHost(t, nil)
	c := &cacheOf{FakeInformers: informertest.FakeInformers{Scheme: h.Scheme()}, reader: empty.WithWatch}
	cached := interceptor.NewClient(h.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return c.Get(ctx, k, o, opts...)
		},
		List: func(ctx context.Context, _ client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return c.List(ctx, l, opts...)
		},
	})
	out, err := Platform(t.Context(), request.Options{Client: cached, Cache: c, Live: h.WithWatch, Namespace: namespace, Timeout: wait})
	if err != nil {
		t.Fatal(err)
	}
	return out, &c.FakeInformers
}

// TestGoneForAnother: what another process has made, and this one's cache does not show yet, is
// not gone because the cache does not show it: the call that has it deleted waits for its end.
func TestGoneForAnother(t *testing.T) {
	held := func(o client.Object) client.Object { o.SetFinalizers([]string{"example.com/hold"}); return o }
	aSnapshot := func(group *moorv1alpha1.SnapshotGroup, name string) client.Object {
		return held(&moorv1alpha1.DPUVolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: moorv1alpha1.DPUVolumeSnapshotSpec{DPUVolumeName: "vol", Group: group},
		})
	}
	for name, tc := range map[string]struct {
		object client.Object
		gone   func(context.Context, provisioner.Platform) error
	}{
		"attachment": {held(anAttachment("")), func(ctx context.Context, p provisioner.Platform) error { return p.Attachments.Detach(ctx, "vol", "a") }},
		"volume":     {held(aVolume()), func(ctx context.Context, p provisioner.Platform) error { return p.Volumes.Delete(ctx, "vol") }},
		"snapshot":   {aSnapshot(nil, "s"), func(ctx context.Context, p provisioner.Platform) error { return p.Snapshots.Delete(ctx, "s") }},
		"group": {
			aSnapshot(&moorv1alpha1.SnapshotGroup{Name: "g", VolumeNames: []string{"vol"}}, "g-0"),
			func(ctx context.Context, p provisioner.Platform) error { return p.Groups.Delete(ctx, "g") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil, tc.object)
			p, _ := behind(t, h, 50*time.Millisecond)
			if err := tc.gone(t.Context(), p); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("while it is there: %v", err)
			}
			now := tc.object.DeepCopyObject().(client.Object)
			if err := h.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil || now.GetDeletionTimestamp().IsZero() {
				t.Fatalf("it is not asked to go: %v", err)
			}
			patient, informers := behind(t, h, time.Minute)
			done := make(chan error, 1)
			go func() { done <- tc.gone(t.Context(), patient) }()
			if err := h.Patch(t.Context(), now, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
				t.Fatal(err)
			}
			informer, err := informers.FakeInformerFor(t.Context(), now)
			if err != nil {
				t.Fatal(err)
			}
			informer.Delete(now) // the cache comes as far
			if err := <-done; err != nil {
				t.Errorf("once it is gone: %v", err)
			}
			if err := tc.gone(t.Context(), patient); err != nil {
				t.Errorf("again: %v", err)
			}
		})
	}
}
