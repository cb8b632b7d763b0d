package plugins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// errChecking stands until the first check of a socket has ended.
var errChecking = fmt.Errorf("it was found and is being checked: %w", provisioner.ErrUnavailable)

// NeedLeaderElection is false: every DPU has its own plugins.
func (*Registry) NeedLeaderElection() bool { return false }

// Start watches until ctx ends. A directory that cannot be watched, now or
// later, is read each period.
func (r *Registry) Start(ctx context.Context) error {
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithName("plugins"))
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the directory of the vendor plugins %s (is fs.inotify.max_user_instances used up?): %w", r.o.Root, err)
	}
	defer watcher.Close()
	defer r.stopAll()
	net := r.o.Clock.NewTicker(r.o.Period)
	defer net.Stop()
	for ctx.Err() == nil {
		if err := r.scan(ctx, watcher.Add); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "scan the directory of the vendor plugins")
		}
		select {
		case <-ctx.Done():
		case <-watcher.Events:
		case err := <-watcher.Errors:
			// Mostly an overflow: the scan that follows makes up for it.
			ctrl.LoggerFrom(ctx).V(1).Info("watch over the vendor plugins", "reason", err.Error())
		case <-net.C():
		}
	}
	return nil
}

// scan reads the whole of root and follows it. Each directory is watched before
// it is read, so no change in between is missed.
func (r *Registry) scan(ctx context.Context, watch func(dir string) error) error {
	if err := os.MkdirAll(r.o.Root, 0o755); err != nil {
		return fmt.Errorf("make the directory of the vendor plugins: %w", err)
	}
	failed := watch(r.o.Root)
	dirs, err := os.ReadDir(r.o.Root)
	if err != nil {
		return fmt.Errorf("read the directory of the vendor plugins: %w", err)
	}
	there := map[string]os.FileInfo{}
	for _, d := range dirs {
		if strings.HasPrefix(d.Name(), ".") {
			continue
		}
		path := filepath.Join(r.o.Root, d.Name())
		if fi, err := os.Stat(path); err != nil || !fi.IsDir() {
			continue
		}
		failed = errors.Join(failed, watch(path))
		// A socket that cannot be read counts as none.
		there[d.Name()], _ = os.Stat(filepath.Join(path, socketName))
	}
	r.update(ctx, func() { r.follow(ctx, there) })
	return failed
}

// follow makes the entries those of the directories there; a nil file is a
// directory without socket. The lock is held.
func (r *Registry) follow(ctx context.Context, there map[string]os.FileInfo) {
	r.scanned = true
	for name, e := range r.entries {
		if _, still := there[name]; !still {
			e.end()
			delete(r.entries, name)
		}
	}
	for name, socket := range there {
		e := r.entries[name]
		switch {
		case socket == nil && e == nil: // a plugin that was never here
		case socket == nil && e.socket != nil:
			e.end()
			r.entries[name] = &entry{err: fmt.Errorf("its socket %s is gone: is its pod running? %w", r.path(name), provisioner.ErrUnavailable)}
		case socket != nil && (e == nil || !sameSocket(e.socket, socket)):
			if e != nil {
				e.end()
			}
			r.entries[name] = r.begin(ctx, name, socket)
		}
	}
}

// begin returns the entry of a new socket. One that takes the place of a plugin
// that worked starts anew: it may be another version.
func (r *Registry) begin(ctx context.Context, name string, socket os.FileInfo) *entry {
	e := &entry{socket: socket, err: errChecking, suspect: make(chan struct{}, 1)}
	if socket.Mode()&os.ModeSocket == 0 {
		e.err = fmt.Errorf("%s is not a socket but %s: remove it: %w", r.path(name), kind(socket), provisioner.ErrPrecondition)
		return e
	}
	ctx, e.stop = context.WithCancel(ctx)
	r.tracking.Go(func() { r.track(ctx, name, e) })
	return e
}

func kind(fi os.FileInfo) string {
	if fi.Mode().IsRegular() {
		return "a file"
	}
	return fi.Mode().Type().String()
}

func (e *entry) end() {
	if e.stop != nil {
		e.stop()
	}
}

func (r *Registry) stopAll() {
	r.mu.Lock()
	for _, e := range r.entries {
		e.end()
	}
	r.mu.Unlock()
	r.tracking.Wait()
}
