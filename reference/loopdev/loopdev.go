// Package loopdev makes block devices of files: the kernel's loop devices, each
// with a label by which it is known again after a restart of the process that made
// it. It knows no volume, and mounts nothing.
package loopdev

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Device is a loop device.
type Device struct {
	// Path is its file in /dev.
	Path string
	// label is what the kernel keeps as the device's lo_file_name.
	label        string
	major, minor uint32
	hold         int
}

// Options say how a file becomes a device.
type Options struct {
	// ReadOnly refuses writes.
	ReadOnly bool
	// Bypass opens the file with O_DIRECT, and without the Go poller: for files of
	// the caller's own file system, which the poller would ask about readiness.
	Bypass bool
	// BlockSize of the device in bytes; 0 is the kernel's choice.
	BlockSize uint32
	// Passing has the kernel give the device back when its last user closes it. Until
	// Release the process that made it is one.
	Passing bool
}

// loopTries bounds the race for a free loop device with others.
const loopTries = 64

// labelOf cuts name to what lo_file_name holds with its final NUL.
func labelOf(name string) string { return name[:min(len(name), 63)] }

// Attach makes a loop device over the file at path, with direct I/O where the file
// system has it.
func Attach(path, label string, o Options) (*Device, error) {
	access, flags := unix.O_RDWR, uint32(unix.LO_FLAGS_DIRECT_IO)
	if o.ReadOnly {
		access, flags = unix.O_RDONLY, flags|unix.LO_FLAGS_READ_ONLY
	}
	if o.Bypass {
		access |= unix.O_DIRECT
	}
	if o.Passing {
		flags |= unix.LO_FLAGS_AUTOCLEAR
	}
	fd, err := retryEINTR(func() (int, error) { return unix.Open(path, access|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, fmt.Errorf("open %s for a loop device: %w", path, err)
	}
	defer unix.Close(fd)
	config := &unix.LoopConfig{Fd: uint32(fd), Size: o.BlockSize, Info: unix.LoopInfo64{Flags: flags}}
	copy(config.Info.File_name[:63], labelOf(label))
	for range loopTries {
		l, err := tryLoop(config)
		// EBUSY: another process took the device between the two calls.
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("make a loop device over %s: %w", path, err)
		}
		l.label = labelOf(label)
		if !o.Passing {
			l.Release()
		}
		return l, nil
	}
	return nil, fmt.Errorf("make a loop device over %s: lost the race for a free one %d times", path, loopTries)
}

// Release ends the use of the device by the process that made it; see
// Options.Passing. Repeated, it does nothing.
func (l *Device) Release() {
	if l.hold >= 0 {
		unix.Close(l.hold)
		l.hold = -1
	}
}

// tryLoop returns a device that is open.
func tryLoop(config *unix.LoopConfig) (*Device, error) {
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
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = unix.IoctlLoopConfigure(fd, config)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("configure %s: %w", path, err)
	}
	return &Device{Path: path, major: unix.Major(st.Rdev), minor: unix.Minor(st.Rdev), hold: fd}, nil
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

// Number is the device's number as sysfs writes it.
func (l *Device) Number() string { return fmt.Sprintf("%d:%d", l.major, l.minor) }

// Node makes a block device file of the loop device at path.
func (l *Device) Node(path string) error {
	if err := unix.Unlink(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	if err := unix.Mknod(path, unix.S_IFBLK|0o660, int(unix.Mkdev(l.major, l.minor))); err != nil {
		return fmt.Errorf("make the block device %s: %w", path, err)
	}
	return nil
}

// Refresh has the loop device take the size of its file.
func (l *Device) Refresh() error {
	fd, err := retryEINTR(func() (int, error) { return unix.Open(l.Path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return fmt.Errorf("open %s to resize it: %w", l.Path, err)
	}
	defer unix.Close(fd)
	if label, err := loopLabel(l.Path, fd); err != nil || label != l.label {
		return fmt.Errorf("resize %s: it is no longer the device of %s (%v)", l.Path, l.label, err)
	}
	if _, err := retryEINTR(func() (int, error) { return 0, unix.IoctlSetInt(fd, unix.LOOP_SET_CAPACITY, 0) }); err != nil {
		return fmt.Errorf("resize %s: %w", l.Path, err)
	}
	return nil
}

// Detach gives the device back: at once, or, if it is open, when the
// last one closes it. A device that is no longer ours is left alone.
func (l *Device) Detach() error {
	fd, err := retryEINTR(func() (int, error) { return unix.Open(l.Path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENXIO) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s to detach it: %w", l.Path, err)
	}
	defer unix.Close(fd)
	if label, err := loopLabel(l.Path, fd); err != nil || label != l.label {
		return nil
	}
	_, err = unix.IoctlRetInt(fd, unix.LOOP_CLR_FD)
	if err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detach %s: %w", l.Path, err)
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

// All returns every loop device whose label begins with prefix; the one of a label
// of 63 bytes or less is found by it.
func All(prefix string) ([]*Device, error) {
	paths, err := filepath.Glob("/dev/loop[0-9]*")
	if err != nil {
		return nil, err
	}
	var out []*Device
	for _, path := range paths {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // not a device that we could have made
		}
		var st unix.Stat_t
		label, err := loopLabel(path, fd)
		err = errors.Join(err, unix.Fstat(fd, &st))
		unix.Close(fd)
		if err == nil && strings.HasPrefix(label, prefix) {
			out = append(out, &Device{Path: path, label: label, major: unix.Major(st.Rdev), minor: unix.Minor(st.Rdev), hold: -1})
		}
	}
	return out, nil
}

// Label is the label of the device, cut to what the kernel keeps of it.
func (l *Device) Label() string { return l.label }

// DetachAll gives back every loop device whose label begins with prefix.
func DetachAll(prefix string) error {
	all, err := All(prefix)
	for _, l := range all {
		err = errors.Join(err, l.Detach())
	}
	return err
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
