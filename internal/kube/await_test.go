package kube

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type informer = cache.Informer

// watched is a cache of pods whose informer the test speaks through.
type watched struct {
	cache.Cache
	informer

	handler toolscache.ResourceEventHandler
	broken  error

	mu   sync.Mutex
	pods map[types.NamespacedName]*corev1.Pod
}

func (w *watched) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return w, w.broken
}

func (w *watched) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	w.handler = h
	return nil, nil
}

func (w *watched) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.pods[k]
	if !ok {
		return apierrors.NewNotFound(corev1.Resource("pods"), k.Name)
	}
	p.DeepCopyInto(o.(*corev1.Pod))
	return nil
}

// put stores a pod in a phase and tells of it.
func (w *watched) put(name string, phase corev1.PodPhase) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: corev1.PodStatus{Phase: phase}}
	k := client.ObjectKeyFromObject(p)
	w.mu.Lock()
	old := w.pods[k]
	w.pods[k] = p
	w.mu.Unlock()
	if old == nil {
		w.handler.OnAdd(p, false)
	} else {
		w.handler.OnUpdate(old, p)
	}
}

// remove forgets a pod; the informer may know no more than that it is gone.
func (w *watched) remove(name string, unsure bool) {
	k := types.NamespacedName{Namespace: "ns", Name: name}
	w.mu.Lock()
	old := w.pods[k]
	delete(w.pods, k)
	w.mu.Unlock()
	if unsure {
		w.handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: k.String(), Obj: old})
	} else {
		w.handler.OnDelete(old)
	}
}

func newAwaiter(t *testing.T) (*watched, *Awaiter[*corev1.Pod]) {
	t.Helper()
	w := &watched{pods: map[types.NamespacedName]*corev1.Pod{}}
	a, err := NewAwaiter(t.Context(), w, func() *corev1.Pod { return &corev1.Pod{} })
	if err != nil {
		t.Fatal(err)
	}
	return w, a
}

var podKey = types.NamespacedName{Namespace: "ns", Name: "pod"}

// within bounds a test: an Awaiter that is not woken fails, it does not hang.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// await waits in the background; looks gets one value for each time that done
// was asked.
func await(ctx context.Context, a *Awaiter[*corev1.Pod], done func(p *corev1.Pod, found bool) (bool, error)) (looks <-chan bool, ended <-chan error) {
	l, e := make(chan bool, 100), make(chan error, 1)
	go func() {
		_, err := a.Await(ctx, podKey, func(p *corev1.Pod, found bool) (bool, error) {
			ok, err := done(p, found)
			l <- ok
			return ok, err
		})
		e <- err
	}()
	return l, e
}

func running(p *corev1.Pod, found bool) (bool, error) {
	return found && p.Status.Phase == corev1.PodRunning, nil
}

func TestAwaitIsWoken(t *testing.T) {
	w, a := newAwaiter(t)
	looks, ended := await(within(t), a, running)
	for i, change := range []func(){
		func() { w.put("pod", corev1.PodPending) },
		func() { w.put("pod", corev1.PodPending) },
		func() { w.put("pod", corev1.PodRunning) },
	} {
		if <-looks {
			t.Fatalf("done before change %d", i)
		}
		change()
	}
	if !<-looks {
		t.Error("not done with a running pod")
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(a.waiting) != 0 {
		t.Errorf("who waited is remembered: %v", a.waiting)
	}
}

func TestAwaitIsThereAlready(t *testing.T) {
	w, a := newAwaiter(t)
	w.put("pod", corev1.PodRunning)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // one look is always taken
	p, err := a.Await(ctx, podKey, running)
	if err != nil || p.Name != "pod" {
		t.Errorf("got %s, %v", p.Name, err)
	}
}

func TestAwaitDeletion(t *testing.T) {
	for name, unsure := range map[string]bool{"seen": false, "not seen": true} {
		t.Run(name, func(t *testing.T) {
			w, a := newAwaiter(t)
			w.put("pod", corev1.PodRunning)
			looks, ended := await(within(t), a, func(_ *corev1.Pod, found bool) (bool, error) { return !found, nil })
			<-looks
			w.remove("pod", unsure)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAwaitOthers: another object's change ends no wait.
func TestAwaitOthers(t *testing.T) {
	w, a := newAwaiter(t)
	looks, ended := await(within(t), a, running)
	<-looks
	w.put("other", corev1.PodRunning)
	w.handler.OnAdd("not an object", false)
	select {
	case <-looks:
		t.Error("woken by another pod")
	default:
	}
	w.put("pod", corev1.PodRunning)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAwaitManyWaiters(t *testing.T) {
	w, a := newAwaiter(t)
	var ends []<-chan error
	for range 20 {
		looks, ended := await(within(t), a, running)
		<-looks
		ends = append(ends, ended)
	}
	w.put("pod", corev1.PodRunning)
	for _, ended := range ends {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestAwaitEnds(t *testing.T) {
	w, a := newAwaiter(t)
	w.put("pod", corev1.PodPending)
	ctx, cancel := context.WithCancel(t.Context())
	looks, ended := await(ctx, a, running)
	<-looks
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	p, err := a.Await(ctx, podKey, running)
	if !errors.Is(err, context.Canceled) || p.Status.Phase != corev1.PodPending {
		t.Errorf("got %v with the pod %s, want what was seen last", err, p.Status.Phase)
	}
	if _, err := a.Await(within(t), podKey, func(*corev1.Pod, bool) (bool, error) { return false, errBroken }); !errors.Is(err, errBroken) {
		t.Errorf("got %v, want done's own error", err)
	}
}

func TestAwaiterNeedsAWatch(t *testing.T) {
	_, err := NewAwaiter(t.Context(), &watched{broken: errBroken}, func() *corev1.Pod { return &corev1.Pod{} })
	if !errors.Is(err, errBroken) || err.Error() != "watch *v1.Pod: the server is gone" {
		t.Errorf("got %v", err)
	}
}
