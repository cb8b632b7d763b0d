package kube

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// CacheLag is how long a cache is given to show what was made, until it is made again.
const CacheLag = 10 * time.Second

// Recent remembers for a while what was just asked for on behalf of an object, by its
// UID, so that a pass whose cache does not show it yet does not ask again. It only
// spares requests: what it forgets, as with the process, is asked for twice. The zero
// value is ready; safe for concurrent use.
type Recent[V any] struct {
	mu sync.Mutex
	by map[types.UID]recent[V]
}

type recent[V any] struct {
	value V
	until time.Time
}

// Note remembers a value until a time, and forgets all that is over by now.
func (r *Recent[V]) Note(of types.UID, value V, now, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[types.UID]recent[V]{}
	}
	maps.DeleteFunc(r.by, func(_ types.UID, e recent[V]) bool { return !now.Before(e.until) })
	r.by[of] = recent[V]{value, until}
}

// Get returns what is remembered, and for how long it will be; 0 if nothing is.
func (r *Recent[V]) Get(of types.UID, now time.Time) (value V, left time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.by[of]
	if !now.Before(e.until) {
		return value, 0
	}
	return e.value, e.until.Sub(now)
}

// Forget drops what is remembered, as the cache shows it.
func (r *Recent[V]) Forget(of types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.by, of)
}
