package refused

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/pkg/scheduler/state"
)

// pace is how often, at most, pods are tried again because nodes have opened:
// as often as the scheduler tries a pod again that has just failed.
const pace = time.Second

// Pods are the pods that are being placed, or that found no node and were
// refused by one.
type Pods struct {
	clock clock.Clock
	keep  time.Duration

	mu    sync.Mutex
	pods  map[types.UID]*wait
	swept time.Time
	due   chan struct{}
}

// wait is one pod's.
type wait struct {
	pod   *corev1.Pod
	since time.Time
	// anywhere is true if its next attempt holds no node back.
	anywhere bool
	// due is true once it is to be tried again.
	due bool
}

// New returns an empty set. A pod is held until End, and if keep is positive no
// longer than twice as long after it was last placed: for those who are not told
// what becomes of a pod.
func New(c clock.Clock, keep time.Duration) *Pods {
	return &Pods{clock: c, keep: keep, pods: map[types.UID]*wait{}, swept: c.Now(), due: make(chan struct{}, 1)}
}

// Begin notes that a pod is being placed. It is called before the index is taken
// by which that is done: then no change after it goes unnoticed. It reports
// whether this once no node is to be held back.
func (p *Pods) Begin(pod *corev1.Pod) (anywhere bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, ok := p.pods[pod.UID]; ok {
		anywhere = old.anywhere
	}
	now := p.clock.Now()
	p.sweep(now)
	p.pods[pod.UID] = &wait{pod: pod, since: now}
	return anywhere
}

// sweep forgets, once in a while, the pods that have not been placed for long.
func (p *Pods) sweep(now time.Time) {
	if p.keep <= 0 || now.Sub(p.swept) < p.keep {
		return
	}
	p.swept = now
	for uid, w := range p.pods {
		if now.Sub(w.since) >= p.keep {
			delete(p.pods, uid)
		}
	}
}

// Anywhere has a pod's next attempt hold no node back.
func (p *Pods) Anywhere(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, ok := p.pods[pod]; ok {
		w.anywhere = true
	}
}

// End forgets a pod: it has a node, is gone, or waits for something else.
func (p *Pods) End(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, pod)
}

// Len is how many pods are held.
func (p *Pods) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pods)
}

// Opened makes those pods due that the node refused and can serve now.
func (p *Pods) Opened(o state.Opened) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.pods {
		if !w.due && refuses(o.Before, w.pod, o.Node) && !refuses(o.After, w.pod, o.Node) {
			w.due = true
			p.signal()
		}
	}
}

func refuses(index *state.Index, pod *corev1.Pod, node string) bool {
	ranking, ours := index.Rank(pod)
	return ours && ranking.Refuse(node).Refused()
}

// All makes every pod due.
func (p *Pods) All() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.pods {
		w.due = true
	}
	p.signal()
}

func (p *Pods) signal() {
	select {
	case p.due <- struct{}{}:
	default: // it is told already
	}
}

// Take returns the pods that are due, and makes them due no more.
func (p *Pods) Take() []*corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*corev1.Pod
	for _, w := range p.pods {
		if w.due {
			w.due = false
			out = append(out, w.pod)
		}
	}
	return out
}

// again makes pods due that could not be tried again.
func (p *Pods) again(pods []*corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range pods {
		if w, ok := p.pods[pod.UID]; ok {
			w.due = true
			p.signal()
		}
	}
}

// Run has pods that are due tried again, until ctx ends. One that is being tried
// is tried again after that, if it fails. When try fails, its pods stay due.
func (p *Pods) Run(ctx context.Context, try func(context.Context, []*corev1.Pod) error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.due:
		}
		if pods := p.Take(); len(pods) > 0 {
			if err := try(ctx, pods); err != nil {
				p.again(pods)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-p.clock.After(pace):
		}
	}
}
