package zerotrust

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/internal/hostdev"
)

// KernelWatcher listens to the kernel's uevents, and to inotify on the sysfs tree
// for an emulated one: real sysfs sends no inotify events of its own changes.
type KernelWatcher struct {
	c       chan struct{}
	roots   hostdev.Roots
	watcher *fsnotify.Watcher
	// uevents is nil where the kernel gives none, as in some containers.
	uevents *os.File
	ended   sync.WaitGroup
}

// NewKernelWatcher listens until ctx ends; Wait waits for the end of it.
func NewKernelWatcher(ctx context.Context, roots hostdev.Roots) (*KernelWatcher, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s (is fs.inotify.max_user_instances used up?): %w", roots.Sysfs, err)
	}
	w := &KernelWatcher{c: make(chan struct{}, 1), roots: roots, watcher: watcher}
	w.add() // before devices are listed for the first time
	w.ended.Go(w.watch)
	if w.uevents, err = listenUevents(); err == nil {
		w.ended.Go(w.listen)
	}
	context.AfterFunc(ctx, func() {
		_ = watcher.Close()
		if w.uevents != nil {
			_ = w.uevents.Close()
		}
	})
	return w, nil
}

// Changed implements DeviceWatcher.
func (w *KernelWatcher) Changed() <-chan struct{} { return w.c }

// Wait returns when its goroutines have ended, after the end of the context.
func (w *KernelWatcher) Wait() { w.ended.Wait() }

func (w *KernelWatcher) tell() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// deviceDirs are where a device can appear, from the top down.
var deviceDirs = []string{
	"fs/virtiofs", "bus/pci/drivers/nvme", "bus/pci/devices", "bus/pci/drivers/nvme/*", "bus/pci/drivers/nvme/*/nvme", "bus/pci/drivers/nvme/*/nvme/nvme*",
}

// add watches every directory in which a device can appear. Each is watched
// before those in it are looked for, so none is missed.
func (w *KernelWatcher) add() {
	for _, pattern := range deviceDirs {
		dirs, _ := filepath.Glob(filepath.Join(w.roots.Sysfs, pattern))
		for _, dir := range dirs {
			_ = w.watcher.Add(dir) // gone again, or no watches left: the period makes up for it
		}
	}
}

func (w *KernelWatcher) watch() {
	for {
		select {
		case _, open := <-w.watcher.Events:
			if !open {
				return
			}
		case _, open := <-w.watcher.Errors:
			if !open {
				return
			}
		}
		w.add()
		w.tell()
	}
}

// listenUevents opens the kernel's multicast group of uevents, netlink(7).
func listenUevents() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("open a socket for uevents: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for uevents: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "uevents"), nil
}

// listen takes every uevent for a change, also the loss of some (ENOBUFS): what
// has changed is read from sysfs, not from the event.
func (w *KernelWatcher) listen() {
	buf := make([]byte, 8192)
	for {
		if _, err := w.uevents.Read(buf); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
		w.tell()
	}
}
