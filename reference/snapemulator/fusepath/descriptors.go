package fusepath

import (
	"sync"

	"golang.org/x/sys/unix"
)

// descriptors are those of the files of one shared directory. While one is open
// the file system that it is on cannot be unmounted.
type descriptors struct {
	mu   sync.Mutex
	open map[int]bool
	// ended says that none is kept open any more.
	ended bool
}

func newDescriptors() *descriptors { return &descriptors{open: map[int]bool{}} }

// add takes a descriptor over.
func (d *descriptors) add(fd int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		_ = unix.Close(fd)
		return
	}
	d.open[fd] = true
}

// close closes one, unless all were closed before: its number may be another's by
// now.
func (d *descriptors) close(fd int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open[fd] {
		delete(d.open, fd)
		_ = unix.Close(fd)
	}
}

// end closes all, for good. None may be used meanwhile or after.
func (d *descriptors) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	for fd := range d.open {
		_ = unix.Close(fd)
	}
	clear(d.open)
}
