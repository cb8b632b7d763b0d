package exposures

import (
	"context"
	"sync"

	"github.com/moor-storage/moor/internal/keylock"
	"github.com/moor-storage/moor/pkg/provisioner/snap"
)

// Work is what is under way on this DPU: at most one operation on a volume or a
// device at a time, and the passes that may be ended early. The zero value is
// ready to use. Safe for concurrent use.
type Work struct {
	locks keylock.Locks

	mu  sync.Mutex
	end map[string]context.CancelFunc
}

// Lock takes a volume and a device, either of which may be "", or neither. It
// keeps the patrol away from what a pass works on.
func (w *Work) Lock(volumeID, device string) (unlock func(), ok bool) {
	var keys []string
	if volumeID != "" {
		keys = append(keys, "volume/"+volumeID)
	}
	if device != "" {
		keys = append(keys, "device/"+snap.NQN(device))
	}
	var held []func()
	release := func() {
		for _, unlock := range held {
			unlock()
		}
	}
	for _, key := range keys {
		unlock, ok := w.locks.TryLock(key)
		if !ok {
			release()
			return nil, false
		}
		held = append(held, unlock)
	}
	return release, true
}

// Begin registers a pass over the volume that may be ended early, by end. A pass
// that takes a device away is not registered.
func (w *Work) Begin(volumeID string, end context.CancelFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end == nil {
		w.end = map[string]context.CancelFunc{}
	}
	w.end[volumeID] = end
}

// Finish takes the pass out: from here on nothing ends it early.
func (w *Work) Finish(volumeID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.end, volumeID)
}

// Interrupt ends a pass over the volume, if one is under way.
func (w *Work) Interrupt(volumeID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if end := w.end[volumeID]; end != nil {
		end()
	}
}

// InterruptAll ends every pass that may be ended early.
func (w *Work) InterruptAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, end := range w.end {
		end()
	}
}
