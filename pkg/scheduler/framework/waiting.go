package framework

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/pkg/scheduler/state"
)

// pace is how often, at most, pods are tried again because nodes have opened:
// as often as the scheduler tries a pod again that has just failed.
const pace = time.Second

// waiting are the pods that are being placed, or that found no node and were
// refused by one. They are tried again when a node that refused them can serve.
//
// The scheduler could watch DPUStorageNodes and attachments itself, if they were
// named in EventsToRegister. It would hold each whole, go through its queue at
// each heartbeat, and try a pod again by a watch of its own, possibly before the
// index has what the pod waits for.
type waiting struct {
	mu   sync.Mutex
	pods map[types.UID]*wait
	due  chan struct{}
}

// wait is one pod's.
type wait struct {
	pod *corev1.Pod
	// anywhere is true if its next attempt holds no node back.
	anywhere bool
	// due is true once it is to be tried again.
	due bool
}

func newWaiting() *waiting {
	return &waiting{pods: map[types.UID]*wait{}, due: make(chan struct{}, 1)}
}

// begin notes that a pod is being placed, and says whether this once no node is
// held back.
func (w *waiting) begin(pod *corev1.Pod) (anywhere bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old, ok := w.pods[pod.UID]; ok {
		anywhere = old.anywhere
	}
	w.pods[pod.UID] = &wait{pod: pod}
	return anywhere
}

// anywhere has a pod's next attempt hold no node back.
func (w *waiting) anywhere(pod types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, ok := w.pods[pod]; ok {
		p.anywhere = true
	}
}

// end forgets a pod: it has a node, is gone, or waits for something else.
func (w *waiting) end(pod types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, pod)
}

// opened makes those pods due that the node refused and can serve now.
func (w *waiting) opened(o state.Opened) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pods {
		if !p.due && refuses(o.Before, p.pod, o.Node) && !refuses(o.After, p.pod, o.Node) {
			p.due = true
			w.signal()
		}
	}
}

func refuses(index *state.Index, pod *corev1.Pod, node string) bool {
	ranking, ours := index.Rank(pod)
	return ours && ranking.Refuse(node).Refused()
}

// all makes every pod due.
func (w *waiting) all() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pods {
		p.due = true
	}
	w.signal()
}

func (w *waiting) signal() {
	select {
	case w.due <- struct{}{}:
	default: // it is told already
	}
}

// take returns the pods that are due, and makes them due no more.
func (w *waiting) take() map[string]*corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]*corev1.Pod{}
	for _, p := range w.pods {
		if p.due {
			p.due = false
			out[key(p.pod)] = p.pod
		}
	}
	return out
}

// run has pods that are due tried again, until ctx ends. One that is being
// tried is tried again after that, if it fails.
func (w *waiting) run(ctx context.Context, c clock.Clock, scheduler fwk.PodActivator) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.due:
		}
		if pods := w.take(); len(pods) > 0 {
			scheduler.Activate(klog.FromContext(ctx), pods)
		}
		select {
		case <-ctx.Done():
			return
		case <-c.After(pace):
		}
	}
}

// handler forgets pods that have a node or are gone.
func (w *waiting) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, o any) {
			if pod, ok := o.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
				w.end(pod.UID)
			}
		},
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if pod, ok := o.(*corev1.Pod); ok {
				w.end(pod.UID)
			}
		},
	}
}
