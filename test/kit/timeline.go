package kit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Hop is one thing that is to be seen in one of the clusters.
type Hop struct {
	// Name says what it is, for people.
	Name string
	// Where to watch, and which kind.
	Where client.WithWatch
	Kind  client.ObjectList
	// Seen reports whether this object shows it.
	Seen func(client.Object) bool
}

// Timeline records when each of several hops is first seen.
type Timeline struct {
	hops  []Hop
	begin time.Time

	mu   sync.Mutex
	at   []time.Time
	more chan struct{}
}

// Watch begins to watch for the hops; time counts from now. It returns once
// every watch stands, so that nothing later is missed. The watches end with ctx.
func Watch(ctx context.Context, hops ...Hop) (*Timeline, error) {
	t := &Timeline{hops: hops, at: make([]time.Time, len(hops)), more: make(chan struct{}, 1)}
	for i, hop := range hops {
		list := hop.Kind.DeepCopyObject().(client.ObjectList)
		w, err := hop.Where.Watch(ctx, list)
		if err != nil {
			return nil, fmt.Errorf("watch for %q: %w", hop.Name, err)
		}
		go t.follow(i, w)
	}
	t.begin = time.Now()
	return t, nil
}

func (t *Timeline) follow(i int, w watch.Interface) {
	defer w.Stop()
	for event := range w.ResultChan() {
		o, ok := event.Object.(client.Object)
		if !ok || event.Type == watch.Deleted || event.Type == watch.Bookmark || !t.hops[i].Seen(o) {
			continue
		}
		t.mu.Lock()
		t.at[i] = time.Now()
		t.mu.Unlock()
		select {
		case t.more <- struct{}{}:
		default:
		}
		return
	}
}

// Wait returns once every hop was seen; after timeout the error names those
// that were not.
func (t *Timeline) Wait(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		missing := t.missing()
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-t.more:
		case <-ctx.Done():
			return fmt.Errorf("not seen within %s: %q: %w", timeout, missing, ctx.Err())
		}
	}
}

func (t *Timeline) missing() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for i, at := range t.at {
		if at.IsZero() {
			out = append(out, t.hops[i].Name)
		}
	}
	return out
}

// Mark is a hop and when it was seen, counted from the beginning.
type Mark struct {
	Name string
	At   time.Duration
}

// Marks lists the hops in the order in which they were given.
func (t *Timeline) Marks() []Mark {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Mark
	for i, at := range t.at {
		if !at.IsZero() {
			// What was there before counts as seen at the beginning.
			out = append(out, Mark{Name: t.hops[i].Name, At: max(0, at.Sub(t.begin))})
		}
	}
	return out
}
