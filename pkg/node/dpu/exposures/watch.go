package exposures

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Arrivals tells when a SNAP service has made its socket. It is a manager.Runnable.
type Arrivals struct {
	// Root holds a directory for each SNAP service.
	Root string
	// Came is called for each, and once when the watch has begun; it does not block.
	Came func()
	// open begins to watch nothing; nil: fsnotify.NewWatcher.
	open func() (*fsnotify.Watcher, error)
}

// NeedLeaderElection is false: every DPU has its own services.
func (Arrivals) NeedLeaderElection() bool { return false }

// Start watches until ctx ends. What cannot be watched is found by the patrol, so that is no
// reason to end the driver.
func (a Arrivals) Start(ctx context.Context) error {
	if a.open == nil {
		a.open = fsnotify.NewWatcher
	}
	watcher, err := a.open()
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "a SNAP service that comes back is found by the next round alone: is fs.inotify.max_user_instances used up?", "directory", a.Root)
		return nil
	}
	defer watcher.Close()
	if err := a.follow(watcher); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "a SNAP service that comes back is found by the next round alone")
	}
	a.Came()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-watcher.Events:
			if !e.Has(fsnotify.Create) {
				continue
			}
			if filepath.Dir(e.Name) != filepath.Clean(a.Root) && filepath.Base(e.Name) != socketName {
				continue
			}
			if err := a.follow(watcher); err != nil {
				ctrl.LoggerFrom(ctx).V(1).Info("watch over the SNAP services", "reason", err.Error())
			}
			a.Came()
		case err := <-watcher.Errors: // mostly an overflow
			ctrl.LoggerFrom(ctx).V(1).Info("watch over the SNAP services", "reason", err.Error())
			a.Came()
		}
	}
}

// follow watches the root, and the directory of each service.
func (a Arrivals) follow(watcher *fsnotify.Watcher) error {
	if err := os.MkdirAll(a.Root, 0o755); err != nil {
		return err
	}
	failed := watcher.Add(a.Root)
	dirs, err := os.ReadDir(a.Root)
	for _, d := range dirs {
		if path := filepath.Join(a.Root, d.Name()); d.IsDir() {
			failed = errors.Join(failed, watcher.Add(path))
		}
	}
	return errors.Join(failed, err)
}
