package deadmounts

import (
	"context"

	"github.com/go-logr/logr"
)

// Touch reads from the device of each mount once for each value of asks, until ctx ends, and judges
// nothing by it: a read is I/O, by which a DPU that hears nothing else of its host knows that it
// lives. A read that hangs holds up nothing, and is not repeated. Answers of looks are not taken for
// it, nor its own for theirs: what is dead is told by two that lie a Period apart.
func (w *Watcher) Touch(ctx context.Context, asks <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-asks:
		}
		shown, err := w.shown()
		if err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "read the devices of mounts")
			continue
		}
		for _, s := range shown {
			w.touch(s)
		}
	}
}

// touch reads the device of a mount, unless an earlier touch of it has not ended.
func (w *Watcher) touch(s showing) {
	path := s.mount.Path
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.touched[path] {
		return
	}
	w.touched[path] = true
	go func() {
		_ = w.o.Broken(path, s.mount) // the next look judges
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.touched, path)
	}()
}
