package endpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/node/pods/show"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestMain leaves out what ginkgo starts once for signals, and never ends.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/onsi/ginkgo/v2/internal/interrupt_handler.(*InterruptHandler).registerForInterrupts.func2"))
}

const (
	driver = "crypt"
	node   = "n1"
	boot   = "boot-2"
	handle = "a/handle of any kind"
	target = "/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~csi/pv-1/mount"
)

// bed is a node service over an API server in memory.
type bed struct {
	*Server
	t *testing.T
	// direct reads and writes past what the service is made to see.
	direct client.WithWatch
	// hidden is whether the cache of the service does not show PodStagings yet.
	hidden bool
	// patient is whether calls have time to wait.
	patient bool
	// before is called before each request of the service, by its verb.
	before func(verb string)
	serves error
	// boot is that of the node when the report was read.
	boot string

	mu    sync.Mutex
	shown map[string]show.Want
	fails error
	uids  int
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, boot: boot, shown: map[string]show.Want{}, before: func(string) {}}
	scheme, err := kube.NewScheme(moorv1alpha1.AddPodsToScheme, corev1.AddToScheme)
	b.must(err)
	build := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&moorv1alpha1.PodStaging{})
	byNode := IndexByNode()
	build.WithIndex(byNode.Object, byNode.Field, byNode.Extract)
	b.direct = interceptor.NewClient(build.Build(), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		b.mu.Lock()
		b.uids++
		o.SetUID(types.UID(fmt.Sprintf("uid-of-%s-%d", o.GetName(), b.uids)))
		b.mu.Unlock()
		return c.Create(ctx, o, opts...)
	}})
	cached, live := b.seen(true), b.seen(false)
	b.Server = New(Options{
		Driver: driver, Node: node, Boot: boot, Client: cached, Live: live, Stagings: watching{b, cached}, Targets: b,
		Serves: func(context.Context) error { return b.serves },
	})
	b.add(pv("pv-1", driver, handle))
	return b
}

// seen is the API server as the service sees it.
func (b *bed) seen(cached bool) client.WithWatch {
	hides := func(o any) bool {
		switch o.(type) {
		case *moorv1alpha1.PodStaging, *moorv1alpha1.PodStagingList:
			return cached && b.hidden
		}
		return false
	}
	asks := func(ctx context.Context, verb string) error {
		b.before(verb)
		return ctx.Err()
	}
	return interceptor.NewClient(b.direct, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := asks(ctx, "get"); err != nil {
				return err
			}
			if hides(o) {
				k.Name += "-hidden"
			}
			return c.Get(ctx, k, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if err := asks(ctx, "list"); err != nil || hides(l) {
				return err
			}
			return c.List(ctx, l, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := asks(ctx, "create"); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := asks(ctx, "delete"); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
	})
}

// watching is a kube.Awaiter on a fake client. The time of calls that are not patient is over when they
// have to wait.
type watching struct {
	b      *bed
	cached client.WithWatch
}

func (w watching) Await(ctx context.Context, key types.NamespacedName, done func(*moorv1alpha1.PodStaging, bool) (bool, error)) (*moorv1alpha1.PodStaging, error) {
	events, err := w.b.direct.Watch(ctx, &moorv1alpha1.PodStagingList{})
	if err != nil {
		return nil, err
	}
	defer events.Stop()
	for {
		p := &moorv1alpha1.PodStaging{}
		found, err := kube.Find(ctx, w.cached, key, p)
		if err != nil {
			return p, err
		}
		if ok, err := done(p, found); ok || err != nil {
			return p, err
		}
		if !w.b.patient {
			return p, context.DeadlineExceeded
		}
		select {
		case <-ctx.Done():
			return p, ctx.Err()
		case <-events.ResultChan():
		}
	}
}

// Show, Hide and Usage are the targets.

func (b *bed) Show(w show.Want) error {
	b.before("show")
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails != nil {
		return b.fails
	}
	b.shown[w.Target] = w
	return nil
}

func (b *bed) Hide(target string) error {
	b.before("hide")
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.shown, target)
	return b.fails
}

func (b *bed) Usage(target string) ([]*csispec.VolumeUsage, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, is := b.shown[target]; !is {
		return nil, provisioner.ErrNotFound
	}
	return []*csispec.VolumeUsage{{Unit: csispec.VolumeUsage_BYTES, Total: 7}}, nil
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) add(all ...client.Object) {
	b.t.Helper()
	for _, o := range all {
		b.must(b.direct.Create(b.t.Context(), o))
	}
}

func pv(name, driver, handle string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}},
	}}
}

// staging is the only PodStaging; nil if there is none.
func (b *bed) staging() *moorv1alpha1.PodStaging {
	b.t.Helper()
	var list moorv1alpha1.PodStagingList
	b.must(b.direct.List(context.Background(), &list))
	switch len(list.Items) {
	case 0:
		return nil
	case 1:
		return &list.Items[0]
	}
	b.t.Fatalf("%d PodStagings, want one", len(list.Items))
	return nil
}

// status writes that of the PodStaging.
func (b *bed) status(phase moorv1alpha1.PodStagingPhase, message string) {
	b.t.Helper()
	p := b.staging()
	p.Status.Phase, p.Status.Message, p.Status.Directory = phase, message, "dir-"+string(p.UID)
	p.Status.Report = &moorv1alpha1.StagingReport{BootID: b.boot}
	b.must(b.direct.Status().Update(context.Background(), p))
}

// play is pod-provisioner (controller): it stages what is asked for, and unstages what is deleted, until
// the test ends.
func (b *bed) play() {
	b.t.Helper()
	b.patient = true
	ctx, cancel := context.WithCancel(b.t.Context())
	events, err := b.direct.Watch(ctx, &moorv1alpha1.PodStagingList{})
	b.must(err)
	done := make(chan struct{})
	b.t.Cleanup(func() { cancel(); events.Stop(); <-done })
	go func() {
		defer close(done)
		for {
			var list moorv1alpha1.PodStagingList
			if b.direct.List(ctx, &list) != nil {
				return
			}
			for i := range list.Items {
				p := &list.Items[i]
				switch {
				case len(p.Finalizers) == 0:
					_, _ = kube.AddFinalizer(ctx, b.direct, p, moorv1alpha1.FinalizerPodStaging)
				case !p.DeletionTimestamp.IsZero():
					_ = kube.RemoveFinalizers(ctx, b.direct, p, moorv1alpha1.FinalizerPodStaging)
				case p.Status.Phase == "":
					p.Status.Phase, p.Status.Directory = moorv1alpha1.PodStagingStaged, "dir-"+string(p.UID)
					_ = b.direct.Status().Update(ctx, p)
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-events.ResultChan():
			}
		}
	}()
}

func publishRequest() *csispec.NodePublishVolumeRequest {
	return &csispec.NodePublishVolumeRequest{
		VolumeId: handle, TargetPath: target,
		VolumeCapability: &csispec.VolumeCapability{
			AccessType: &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{}},
			AccessMode: &csispec.VolumeCapability_AccessMode{Mode: csispec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
		},
		VolumeContext: map[string]string{podName: "user", podNamespace: "ns", podUID: "uid-1", ephemeral: "false"},
	}
}

func (b *bed) publishVolume(ctx context.Context, change func(r *csispec.NodePublishVolumeRequest)) error {
	r := publishRequest()
	if change != nil {
		change(r)
	}
	_, err := b.NodePublishVolume(ctx, r)
	return err
}

func (b *bed) unpublishVolume(ctx context.Context) error {
	_, err := b.NodeUnpublishVolume(ctx, &csispec.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: target})
	return err
}

// refused checks an error's kind, and that it has all of the words.
func refused(t *testing.T, err, kind error, words ...string) {
	t.Helper()
	if err == nil || kind != nil && !errors.Is(err, kind) || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(err.Error(), w) }) {
		t.Errorf("%v, want %v with %q", err, kind, words)
	}
}
