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

// KernelSigns are the kernel's uevents, and inotify on the sysfs tree for an
// emulated one; sysfs proper notifies nobody of its own changes.
type KernelSigns struct {
	c       chan struct{}
	roots   hostdev.Roots
	watcher *fsnotify.Watcher
	// uevents is nil where the kernel gives none, as in some containers.
	uevents *os.File
	ended   sync.WaitGroup
}

// NewKernelSigns listens until ctx ends; Wait waits for the end of it.
func NewKernelSigns(ctx context.Context, roots hostdev.Roots) (*KernelSigns, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s (is fs.inotify.max_user_instances used up?): %w", roots.Sysfs, err)
	}
	s := &KernelSigns{c: make(chan struct{}, 1), roots: roots, watcher: watcher}
	s.add() // before anybody looks for devices
	s.ended.Go(s.watch)
	if s.uevents, err = listenUevents(); err == nil {
		s.ended.Go(s.listen)
	}
	context.AfterFunc(ctx, func() {
		_ = watcher.Close()
		if s.uevents != nil {
			_ = s.uevents.Close()
		}
	})
	return s, nil
}

// C implements Signs.
func (s *KernelSigns) C() <-chan struct{} { return s.c }

// Wait returns when nothing runs any more, after the end of the context.
func (s *KernelSigns) Wait() { s.ended.Wait() }

func (s *KernelSigns) tell() {
	select {
	case s.c <- struct{}{}:
	default:
	}
}

// deviceDirs are where a device can appear, from the top down.
var deviceDirs = []string{
	"fs/virtiofs", "bus/pci/drivers/nvme", "bus/pci/devices", "bus/pci/drivers/nvme/*", "bus/pci/drivers/nvme/*/nvme", "bus/pci/drivers/nvme/*/nvme/nvme*",
}

// add watches every directory in which a device can appear. Each is watched
// before those in it are looked for, so none is missed.
func (s *KernelSigns) add() {
	for _, pattern := range deviceDirs {
		dirs, _ := filepath.Glob(filepath.Join(s.roots.Sysfs, pattern))
		for _, dir := range dirs {
			_ = s.watcher.Add(dir) // gone again, or no watches left: the period makes up for it
		}
	}
}

func (s *KernelSigns) watch() {
	for {
		select {
		case _, open := <-s.watcher.Events:
			if !open {
				return
			}
		case _, open := <-s.watcher.Errors:
			if !open {
				return
			}
		}
		s.add()
		s.tell()
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

// listen takes every uevent for a sign: what changed is looked up, never
// believed. So is the loss of some (ENOBUFS).
func (s *KernelSigns) listen() {
	buf := make([]byte, 8192)
	for {
		if _, err := s.uevents.Read(buf); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
		s.tell()
	}
}
