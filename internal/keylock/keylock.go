// Package keylock owns one idea: at most one operation on a key at a time,
// and no caller queues for it.
//
// A second caller is told at once that the key is taken, so that it can
// answer "repeat later" and hold no goroutine.
package keylock

import "sync"

// Locks is a set of keys that are taken now. The zero value is ready to use;
// it must not be copied after first use. Safe for concurrent use.
type Locks struct {
	mu    sync.Mutex
	taken map[string]struct{}
}

// TryLock takes key if it is free and never waits. When ok is true the caller
// owns the key until it calls unlock, which may be called more than once; only
// the first call has an effect. When ok is false unlock is nil.
func (l *Locks) TryLock(key string) (unlock func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, busy := l.taken[key]; busy {
		return nil, false
	}
	if l.taken == nil {
		l.taken = make(map[string]struct{})
	}
	l.taken[key] = struct{}{}
	var once sync.Once
	return func() { once.Do(func() { l.release(key) }) }, true
}

func (l *Locks) release(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.taken, key)
}
