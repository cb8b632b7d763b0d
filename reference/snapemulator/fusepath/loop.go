package fusepath

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// loop is a loop device over a file of the emulator.
type loop struct {
	path string
	// label is what the kernel keeps as the device's lo_file_name.
	label        string
	major, minor uint32
}

// loopTries bounds the race for a free loop device with others.
const loopTries = 64

// labelOf cuts name to what lo_file_name holds with its final NUL.
func labelOf(name string) string { return name[:min(len(name), 63)] }

// attachLoop makes a loop device over the file at path, with direct I/O and
// blocks of 512 bytes. It opens the file without the Go poller, which would ask
// our own file system about readiness.
func attachLoop(path, name string, readOnly bool) (*loop, error) {
	access, flags := unix.O_RDWR, uint32(unix.LO_FLAGS_DIRECT_IO)
	if readOnly {
		access, flags = unix.O_RDONLY, flags|unix.LO_FLAGS_READ_ONLY
	}
	fd, err := retryEINTR(func() (int, error) { return unix.Open(path, access|unix.O_CLOEXEC|unix.O_DIRECT, 0) })
	if err != nil {
		return nil, fmt.Errorf("open %s for a loop device: %w", path, err)
	}
	defer unix.Close(fd)
	config := &unix.LoopConfig{Fd: uint32(fd), Size: 512, Info: unix.LoopInfo64{Flags: flags}}
	copy(config.Info.File_name[:63], labelOf(name))
	for range loopTries {
		l, err := tryLoop(config)
		// EBUSY: another process took the device between the two calls.
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("make a loop device over %s: %w", path, err)
		}
		l.label = labelOf(name)
		return l, nil
	}
	return nil, fmt.Errorf("make a loop device over %s: lost the race for a free one %d times", path, loopTries)
}

func tryLoop(config *unix.LoopConfig) (*loop, error) {
	control, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/loop-control: %w", err)
	}
	defer unix.Close(control)
	number, err := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, fmt.Errorf("find a free loop device: %w", err)
	}
	path := fmt.Sprintf("/dev/loop%d", number)
	fd, err := openLoop(path, number)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, err)
	}
	if err := unix.IoctlLoopConfigure(fd, config); err != nil {
		return nil, fmt.Errorf("configure %s: %w", path, err)
	}
	return &loop{path: path, major: unix.Major(st.Rdev), minor: unix.Minor(st.Rdev)}, nil
}

// openLoop opens a loop device, making its file where no devtmpfs does (a
// container's own /dev).
func openLoop(path string, number int) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	const loopMajor = 7 // Documentation/admin-guide/devices.txt
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, uint32(number)))); err != nil {
		return -1, err
	}
	return unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
}

// number is the device's number as sysfs writes it.
func (l *loop) number() string { return fmt.Sprintf("%d:%d", l.major, l.minor) }

// node makes a block device file of the loop device at path.
func (l *loop) node(path string) error {
	if err := unix.Unlink(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	if err := unix.Mknod(path, unix.S_IFBLK|0o660, int(unix.Mkdev(l.major, l.minor))); err != nil {
		return fmt.Errorf("make the block device %s: %w", path, err)
	}
	return nil
}

// refresh has the loop device take the size of its file.
func (l *loop) refresh() error {
	fd, err := retryEINTR(func() (int, error) { return unix.Open(l.path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return fmt.Errorf("open %s to resize it: %w", l.path, err)
	}
	defer unix.Close(fd)
	if label, err := loopLabel(l.path, fd); err != nil || label != l.label {
		return fmt.Errorf("resize %s: it is no longer the device of %s (%v)", l.path, l.label, err)
	}
	if _, err := retryEINTR(func() (int, error) { return 0, unix.IoctlSetInt(fd, unix.LOOP_SET_CAPACITY, 0) }); err != nil {
		return fmt.Errorf("resize %s: %w", l.path, err)
	}
	return nil
}

// detach gives the device back: at once, or, if it is open, when the
// last one closes it. A device that is no longer ours is left alone.
func (l *loop) detach() error {
	fd, err := retryEINTR(func() (int, error) { return unix.Open(l.path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENXIO) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s to detach it: %w", l.path, err)
	}
	defer unix.Close(fd)
	if label, err := loopLabel(l.path, fd); err != nil || label != l.label {
		return nil
	}
	_, err = unix.IoctlRetInt(fd, unix.LOOP_CLR_FD)
	if err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detach %s: %w", l.path, err)
	}
	return nil
}

// loopLabel returns the name of the file under the loop device at path, open as
// fd. The kernel asks the file's own file system before it answers the ioctl,
// and a dead emulator's does not answer: then sysfs says it.
func loopLabel(path string, fd int) (string, error) {
	if info, err := unix.IoctlLoopGetStatus64(fd); err == nil {
		name, _, _ := bytes.Cut(info.File_name[:], []byte{0})
		return string(name), nil
	}
	raw, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(path), "loop/backing_file"))
	if err != nil {
		return "", err
	}
	name := strings.TrimSuffix(strings.TrimSpace(string(raw)), " (deleted)")
	return labelOf(filepath.Base(name)), nil
}

// detachAll gives back every loop device whose label begins with prefix.
func detachAll(prefix string) error {
	paths, err := filepath.Glob("/dev/loop[0-9]*")
	if err != nil {
		return err
	}
	var errs error
	for _, path := range paths {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // not a device that we could have made
		}
		label, err := loopLabel(path, fd)
		unix.Close(fd)
		if err == nil && strings.HasPrefix(label, prefix) {
			errs = errors.Join(errs, (&loop{path: path, label: label}).detach())
		}
	}
	return errs
}

// retryEINTR repeats a call that a signal of the Go runtime interrupted; FUSE
// hands such interruptions on.
func retryEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
