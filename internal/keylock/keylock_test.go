package keylock

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestTryLock(t *testing.T) {
	var l Locks
	unlock, ok := l.TryLock("a")
	if !ok {
		t.Fatal("a free key was refused")
	}
	if _, ok := l.TryLock("a"); ok {
		t.Fatal("a taken key was given out twice")
	}
	other, ok := l.TryLock("b")
	if !ok {
		t.Fatal("another key was refused")
	}
	other()
	unlock()
	again, ok := l.TryLock("a")
	if !ok {
		t.Fatal("a released key was refused")
	}
	unlock() // a second release by the first owner must not free the new one
	if _, ok := l.TryLock("a"); ok {
		t.Fatal("a late second unlock freed another's lock")
	}
	again()
	if len(l.taken) != 0 {
		t.Fatalf("keys left behind: %v", l.taken)
	}
}

func TestTryLockOneOwnerAtATime(t *testing.T) {
	var l Locks
	var owners, most, wins atomic.Int32
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 200 {
				unlock, ok := l.TryLock("k")
				if !ok {
					continue
				}
				if n := owners.Add(1); n > most.Load() {
					most.Store(n)
				}
				wins.Add(1)
				owners.Add(-1)
				unlock()
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 || wins.Load() == 0 {
		t.Fatalf("owners at once %d, want 1; wins %d, want > 0", most.Load(), wins.Load())
	}
}
