package hostdev

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// GivenUp says that the kernel has given a mounted file system up, by the options of a
// mount of it and of its superblock, as mountinfo has them; "" if they do not say so,
// which is no proof that it works. ext4 shows emergency_ro after an error and shutdown
// after a shutdown (Linux 6.15, "ext4: show 'emergency_ro' when EXT4_FLAGS_EMERGENCY_RO is
// set"); up to Linux 6.11 an error made the superblock read-only under mounts that are
// not. From 6.12 to 6.14 its options tell nothing.
func GivenUp(mount, super []string) string {
	has := func(o string) bool { return slices.Contains(super, o) }
	switch {
	case has("shutdown"):
		return "the kernel has shut the file system down"
	case has("emergency_ro"):
		return "the kernel has made the file system read-only after an error"
	case has("ro") && slices.Contains(mount, "rw"):
		return "the kernel has made the file system read-only"
	}
	return ""
}

// ErrHung means that a device has not answered in time. It may still answer.
var ErrHung = errors.New("device does not answer in time")

// HungAfter is how long a device may take for one read. A device that is well takes
// milliseconds; the kernel itself gives up after 30 s (nvme_core.io_timeout), or never.
const HungAfter = 5 * time.Second

// Reads reads devices to find out whether they answer, within a bound. A read of a device
// that hangs cannot be ended, so there is never a second one of the same device: while
// the first lasts, its silence is the answer. The zero value is ready.
type Reads struct {
	// Within is how long a read may take; HungAfter if 0.
	Within time.Duration
	// Clock is the machine's if nil.
	Clock clock.Clock
	// Read reads the device at path; Readable if nil.
	Read func(path string) error

	mu      sync.Mutex
	running map[uint64]*read
}

type read struct {
	began time.Time
	done  chan struct{}
	err   error
}

// Readable is the package's Readable within a bound: ErrHung after it.
func (r *Reads) Readable(path string) error {
	number, err := inode(path)
	if err != nil {
		return err
	}
	now := r.begin(number, path)
	timer := r.clock().NewTimer(cmp.Or(r.Within, HungAfter) - r.clock().Since(now.began))
	defer timer.Stop()
	select {
	case <-now.done:
		return now.err
	case <-timer.C():
		return fmt.Errorf("read %s: nothing was answered for %s: %w", path, r.clock().Since(now.began).Round(time.Second), ErrHung)
	}
}

// begin returns the read of a device that is under way, or begins one.
func (r *Reads) begin(number uint64, path string) *read {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.running[number]; now != nil {
		return now
	}
	now := &read{began: r.clock().Now(), done: make(chan struct{})}
	if r.running == nil {
		r.running = map[uint64]*read{}
	}
	r.running[number] = now
	try := r.Read
	if try == nil {
		try = Readable
	}
	go func() {
		now.err = try(path)
		r.mu.Lock()
		delete(r.running, number)
		r.mu.Unlock()
		close(now.done)
	}()
	return now
}

func (r *Reads) clock() clock.Clock {
	if r.Clock == nil {
		return clock.RealClock{}
	}
	return r.Clock
}

// inode tells devices, and the plain files of tests, apart.
func inode(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("look at device %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return st.Rdev, nil
	}
	return st.Ino, nil
}
