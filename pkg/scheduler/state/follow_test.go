package state

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// informers are client-go's own, over the fake client's lists and watches.
type informers struct {
	client client.WithWatch
	t      *testing.T
	// run starts an informer; a kind in held is not started.
	held map[string]chan struct{}
	// watching is how many watches have begun.
	watching atomic.Int32
	stop     chan struct{}
	all      sync.WaitGroup
}

func newInformers(t *testing.T, objects ...client.Object) *informers {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, storagev1alpha1.AddHostToScheme, moorv1alpha1.AddHostToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	f := &informers{t: t, client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), held: map[string]chan struct{}{}, stop: make(chan struct{})}
	t.Cleanup(func() { close(f.stop); f.all.Wait() })
	return f
}

func (f *informers) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	kinds, _, err := f.client.Scheme().ObjectKinds(obj)
	if err != nil {
		return nil, err
	}
	list := func() (client.ObjectList, error) {
		l, err := f.client.Scheme().New(kinds[0].GroupVersion().WithKind(kinds[0].Kind + "List"))
		return l.(client.ObjectList), err
	}
	informer := toolscache.NewSharedIndexInformer(toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			l, err := list()
			if err != nil {
				return nil, err
			}
			return l, f.client.List(ctx, l)
		},
		WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			l, err := list()
			if err != nil {
				return nil, err
			}
			w, err := f.client.Watch(ctx, l)
			f.watching.Add(1)
			return w, err
		},
	}, noWatchList{}), obj, 0, toolscache.Indexers{})
	if err := informer.SetTransform(Slim); err != nil {
		return nil, err
	}
	f.all.Go(func() {
		if held := f.held[kinds[0].Kind]; held != nil {
			select {
			case <-held:
			case <-f.stop:
			}
		}
		informer.Run(f.stop)
	})
	return informer, nil
}

// noWatchList says that the fake client streams no initial lists.
type noWatchList struct{}

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

// eventually asks again and again, without a sleep that would decide.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: never came about", what)
		}
	}
}

func TestFollow(t *testing.T) {
	// The fake client's watches end with their channels, not at once.
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/watch.(*Broadcaster).loop"))
	t.Run("informers", func(t *testing.T) {
		f := newInformers(t, claim("a"), persistentVolume("a"), storageNode("n1", 4), attachment("at1", "a", "n1", true))
		released := make(chan struct{})
		f.held["PersistentVolume"] = released
		s := New([]string{driver}, clock.RealClock{})
		if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "watches have not begun") {
			t.Errorf("ready before it follows: %v", err)
		}
		if err := s.Follow(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		eventually(t, "three of four kinds", func() bool { return s.Index().Size() == Size{Claims: 1, WarmVolumes: 1, Nodes: 1} })
		eventually(t, "words about the fourth", func() bool {
			err := s.Ready()
			return err != nil && strings.HasSuffix(err.Error(), "the first list of PersistentVolumes has not come yet")
		})
		close(released)
		eventually(t, "ready", func() bool { return s.Ready() == nil })
		if diff := gocmp.Diff([]string{"h-a on n1 attached"}, places(s, pod("a"))); diff != "" {
			t.Errorf("as soon as it is ready: %s", diff)
		}
		f.change(s)
	})
}

// change lets objects come, change and go.
func (f *informers) change(s *Store) {
	f.t.Helper()
	ctx := f.t.Context()
	// The fake client does not tell a watch of what came between the list and it.
	eventually(f.t, "all four are watched", func() bool { return f.watching.Load() == 4 })
	for _, o := range []client.Object{claim("b"), persistentVolume("b"), attachment("at2", "b", "n2", true), storageNode("n2", 0)} {
		if err := f.client.Create(ctx, o); err != nil {
			f.t.Fatal(err)
		}
	}
	eventually(f.t, "a second volume", func() bool { return len(places(s, pod("b"))) == 1 && s.Index().Node("n2").Name == "n2" })
	var a storagev1alpha1.DPUVolumeAttachment
	if err := f.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "at2"}, &a); err != nil {
		f.t.Fatal(err)
	}
	a.Status.DPUAttached = nil
	meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: storagev1alpha1.ConditionPreEmulated, Status: metav1.ConditionTrue, Reason: "Success"})
	if err := f.client.Update(ctx, &a); err != nil {
		f.t.Fatal(err)
	}
	eventually(f.t, "it is pre-emulated", func() bool { return fmt.Sprint(places(s, pod("b"))) == "[h-b on n2 pre-emulated]" })
	for _, o := range []client.Object{attachment("at2", "b", "n2", true), storageNode("n1", 4), claim("a")} {
		if err := f.client.Delete(ctx, o); err != nil {
			f.t.Fatal(err)
		}
	}
	eventually(f.t, "what was deleted is gone", func() bool {
		return s.Index().Size() == Size{Claims: 1, Volumes: 2, WarmVolumes: 1, Nodes: 1}
	})
}

// broken has no informer of one kind.
type broken struct{ *informers }

func (b broken) GetInformer(ctx context.Context, o client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	if _, ok := o.(*moorv1alpha1.DPUStorageNode); ok {
		return nil, &meta.NoKindMatchError{}
	}
	return b.informers.GetInformer(ctx, o, opts...)
}

func TestFollowWithoutCRDs(t *testing.T) {
	err := New([]string{driver}, clock.RealClock{}).Follow(t.Context(), broken{newInformers(t)})
	if !meta.IsNoMatchError(errors.Unwrap(err)) || !strings.Contains(err.Error(), "DPUStorageNodes (are the CRDs") {
		t.Errorf("follow: %v", err)
	}
}

func TestProbing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := clocktesting.NewFakeClock(time.Unix(1000, 0))
	s := New([]string{driver}, c)
	asked, answers := make(chan struct{}), make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Probing(time.Hour, func(context.Context) error {
			asked <- struct{}{}
			return <-answers
		})(ctx)
	}()
	<-asked
	answers <- nil
	eventually(t, "the first answer", func() bool { _, ever := s.Age(); return ever })
	for i, err := range []error{errors.New("down"), errors.New("still down"), nil} {
		eventually(t, "the next turn", func() bool { return c.HasWaiters() })
		c.Step(time.Hour)
		<-asked
		if age, _ := s.Age(); age != time.Duration(i+1)*time.Hour {
			t.Errorf("age %s in turn %d", age, i)
		}
		answers <- err
	}
	eventually(t, "the last answer", func() bool { age, _ := s.Age(); return age == 0 })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestMetrics(t *testing.T) {
	s, c := newStore(claim("a"), persistentVolume("a"))
	registry := prometheus.NewPedanticRegistry()
	if err := errors.Join(s.Register(registry, "extender"), s.RegisterAge(registry, "extender")); err != nil {
		t.Fatal(err)
	}
	if err := s.Register(registry, "extender"); err == nil {
		t.Error("registered twice")
	}
	value := func(name, kind string) string {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.Metric {
				if f.GetName() == name && (kind == "" || m.Label[0].GetValue() == kind) {
					return fmt.Sprint(m.Gauge.GetValue())
				}
			}
		}
		return "none"
	}
	if got := value("moor_extender_index_age_seconds", ""); got != "NaN" {
		t.Errorf("age %s", got)
	}
	if err := s.Probe(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	c.Step(7 * time.Second)
	for _, want := range [][3]string{
		{"moor_extender_index_age_seconds", "", "7"},
		{"moor_extender_index_complete", "", "0"},
		{"moor_extender_index_objects", "claims", "1"},
		{"moor_extender_index_objects", "volumes", "1"},
		{"moor_extender_index_objects", "warm_volumes", "0"},
		{"moor_extender_index_objects", "nodes", "0"},
	} {
		if got := value(want[0], want[1]); got != want[2] {
			t.Errorf("%s %s is %s, want %s", want[0], want[1], got, want[2])
		}
	}
	none := []feed{{"PersistentVolumes", func() bool { return true }}}
	s.feeds.Store(&none)
	if got := value("moor_extender_index_complete", ""); got != "1" {
		t.Errorf("complete %s", got)
	}
}

func TestSlim(t *testing.T) {
	fat := claim("a")
	fat.UID, fat.ResourceVersion, fat.ManagedFields, fat.Labels = "u", "7", []metav1.ManagedFieldsEntry{{}}, map[string]string{"a": "b"}
	got, err := Slim(fat)
	want := claim("a")
	want.UID, want.ResourceVersion = "u", "7"
	if diff := gocmp.Diff(want, got.(*corev1.PersistentVolumeClaim)); diff != "" || err != nil {
		t.Error(diff, err)
	}
	node := storageNode("n", 1)
	node.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	if got, err = Slim(node); err != nil || len(got.(*moorv1alpha1.DPUStorageNode).ManagedFields) > 0 {
		t.Error("managed fields stayed", err)
	}
	if got, err = Slim("no object"); got != "no object" || err != nil {
		t.Error(got, err)
	}
}
