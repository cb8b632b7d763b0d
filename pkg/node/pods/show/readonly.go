package show

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/pkg/node/pods/pavdir"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// A read-only mount does not keep a block device in it from being written. So a device that must not be
// written is shown through a read-only loop device over it, which is named by the target.

// loopMajor is the number of the driver of loop devices.
const loopMajor = 7

// loopName is what the loop device of a target is called.
func loopName(target string) string {
	sum := sha256.Sum256([]byte(target))
	return "moor-" + hex.EncodeToString(sum[:16])
}

// loopPath is the special file of a loop device.
func loopPath(n int) string { return fmt.Sprintf("/dev/loop%d", n) }

// free bounds how often a free loop device is looked for, which another process can take meanwhile.
const free = 16

// guard makes a read-only loop device over a volume for a target, and returns its special file.
func guard(v *pavdir.Volume, target string) (string, error) {
	if err := release(target); err != nil {
		return "", err
	}
	device, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", v.FD()), os.O_RDONLY, 0)
	if err != nil {
		return "", fmt.Errorf("open the block device: %w", err)
	}
	defer device.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("make a read-only loop device: %w", err)
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(device.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_READ_ONLY}}
	copy(config.Info.File_name[:], loopName(target))
	for range free {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("find a free loop device: %w", err)
		}
		err = onLoop(n, func(fd int) error { return unix.IoctlLoopConfigure(fd, &config) })
		if !errors.Is(err, unix.EBUSY) {
			return loopPath(n), err
		}
	}
	return "", errors.New("find a free loop device: other processes take all of them")
}

// onLoop does something with a loop device.
func onLoop(n int, do func(fd int) error) error {
	f, err := os.OpenFile(loopPath(n), os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("open a loop device: %w", err)
	}
	defer f.Close()
	if err := do(int(f.Fd())); err != nil {
		return fmt.Errorf("set up %s: %w", f.Name(), err)
	}
	return nil
}

// guards reports whether a special file is that of a target's loop device over a volume.
func guards(path, target string, v *pavdir.Volume) (bool, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return false, fmt.Errorf("look at %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK || unix.Major(st.Rdev) != loopMajor {
		return false, nil
	}
	over := uint64(0)
	err := named(int(unix.Minor(st.Rdev)), loopName(target), func(_ int, info *unix.LoopInfo64) error {
		over = info.Rdevice
		return nil
	})
	return over == v.Device, err
}

// release ends the loop devices of a target. One that is still open ends when it is closed.
func release(target string) error {
	used, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return fmt.Errorf("list the loop devices: %w", err)
	}
	for _, path := range used {
		var n int
		if _, err := fmt.Sscanf(path, "/sys/block/loop%d/loop/backing_file", &n); err != nil {
			continue // it is another's, with a name of its own
		}
		err := named(n, loopName(target), func(fd int, _ *unix.LoopInfo64) error { return unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0) })
		if err != nil {
			return err
		}
	}
	return nil
}

// named does something with a loop device if it has that name. The kernel tells the name once the file system
// beneath it answers. A device over a file that is no /pav/volume is another program's, so nothing waits for that
// file system to come back.
func named(n int, name string, do func(fd int, info *unix.LoopInfo64) error) error {
	err := onLoop(n, func(fd int) error {
		info, err := unix.IoctlLoopGetStatus64(fd)
		if err != nil && !overVolume(n) {
			return nil
		}
		if err != nil || unix.ByteSliceToString(info.File_name[:]) != name {
			return err
		}
		return do(fd, info)
	})
	if errors.Is(err, unix.ENXIO) || errors.Is(err, os.ErrNotExist) {
		return nil // it has ended
	}
	return err
}

// overVolume reports whether a loop device may be over the device of a volume. One that has ended is over
// nothing.
func overVolume(n int) bool {
	file, err := os.ReadFile(fmt.Sprintf("/sys/block/loop%d/loop/backing_file", n))
	name := strings.TrimSuffix(strings.TrimSpace(string(file)), " (deleted)")
	return err == nil && filepath.Base(name) == pods.FileVolume
}
