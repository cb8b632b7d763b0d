package csi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Mounter is the part of mount-utils' mount.Interface that the service needs,
// and the lazy unmount, which that interface lacks.
type Mounter interface {
	Mount(source, target, fstype string, options []string) error
	Unmount(target string) error
	List() ([]mount.MountPoint, error)
	// Detach takes the mount out of the tree at once and leaves the rest to
	// the kernel, which ends it when its last user goes (MNT_DETACH).
	Detach(target string) error
}

// NewMounter is the Mounter of the machine.
func NewMounter() Mounter { return realMounter{mount.New("")} }

type realMounter struct{ mount.Interface }

func (realMounter) Detach(target string) error {
	return unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
}

// Devices answers what lies where; HostDevices is the machine.
type Devices interface {
	// Number is the number of the block device at path.
	Number(path string) (uint64, error)
	// Below is the number of the device that the file system at path is on.
	Below(path string) (uint64, error)
	// Readable says whether the device at path still answers.
	Readable(path string) error
	// Size is the size of the device at path, in bytes.
	Size(path string) (int64, error)
	// Usage is how full the file system at path is.
	Usage(path string) (Usage, error)
}

// HostDevices is the Devices of the machine.
type HostDevices struct{}

// Number implements Devices.
func (HostDevices) Number(path string) (uint64, error) { return hostdev.DeviceNumber(path) }

// Below implements Devices.
func (HostDevices) Below(path string) (uint64, error) { return hostdev.FilesystemDevice(path) }

// Readable implements Devices.
func (HostDevices) Readable(path string) error { return hostdev.Readable(path) }

// mounts reads and changes the mount table.
type mounts struct {
	m Mounter
	d Devices
}

// at is the topmost mount on path, and whether there is one. It reads the table
// and does not touch path, which may lie on a device that no longer answers.
func (t mounts) at(path string) (mount.MountPoint, bool, error) {
	list, err := t.m.List()
	if err != nil {
		return mount.MountPoint{}, false, fmt.Errorf("read the mount table: %w", err)
	}
	names := []string{filepath.Clean(path)}
	if parent, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		names = append(names, filepath.Join(parent, filepath.Base(path)))
	}
	for _, mp := range slices.Backward(list) {
		if slices.Contains(names, mp.Path) {
			return mp, true, nil
		}
	}
	return mount.MountPoint{}, false, nil
}

// maxStacked bounds how many mounts on top of one another clear removes.
const maxStacked = 16

// clear unmounts everything on path; nothing there is success. A mount in use
// is ErrBusy, unless its device is dead: then it is detached lazily, since no
// user of it can succeed any more.
func (t mounts) clear(path string) error {
	for range maxStacked {
		mp, mounted, err := t.at(path)
		if err != nil || !mounted {
			return err
		}
		if err := t.unmount(path, mp); err != nil {
			return err
		}
	}
	return fmt.Errorf("unmount %s: more than %d mounts lie on it: %w", path, maxStacked, provisioner.ErrBusy)
}

func (t mounts) unmount(path string, mp mount.MountPoint) error {
	err := t.m.Unmount(path)
	if err == nil {
		return nil
	}
	dead := t.dead(path, mp)
	if dead == nil {
		return fmt.Errorf("unmount %s: %v; a process may still use it: end it, then it is tried again: %w", path, err, provisioner.ErrBusy)
	}
	if lazy := t.m.Detach(path); lazy != nil {
		return fmt.Errorf("unmount %s, whose device is dead (%v): %v; and lazily: %w", path, dead, err, lazy)
	}
	return nil
}

// dead says why the device under the mount does not answer; nil if it does.
func (t mounts) dead(path string, mp mount.MountPoint) error {
	fi, err := os.Stat(path)
	if err != nil && mount.IsCorruptedMnt(err) {
		return err
	}
	bound := err == nil && fi.Mode()&os.ModeDevice != 0
	if bound || !filepath.IsAbs(mp.Device) {
		if err == nil && fi.IsDir() {
			return nil // tmpfs and the like have no device
		}
		return t.d.Readable(path) // a device file, listed under what it lies on
	}
	if err := t.renamed(path, mp); err != nil {
		return err
	}
	return t.d.Readable(mp.Device)
}

// renamed says that the device mounted on path is gone and that its name has
// gone to another one since. ext4 and xfs only: others may show a number that
// belongs to no device.
func (t mounts) renamed(path string, mp mount.MountPoint) error {
	if !slices.Contains(csiserver.FSTypes, mp.Type) {
		return nil
	}
	named, nameErr := t.d.Number(mp.Device)
	below, belowErr := t.d.Below(path)
	if nameErr == nil && belowErr == nil && named != below {
		return fmt.Errorf("the device mounted on %s is gone, %s is another one now", path, mp.Device)
	}
	return nil
}

// remove deletes the empty directory, or the file, that a mount lay on. Never
// recursively: its content is not ours.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// sameDevice says whether the file system mounted on path lies on device.
func (t mounts) sameDevice(path string, mp mount.MountPoint, device string) (bool, error) {
	want, err := t.d.Number(device)
	if err != nil {
		return false, err
	}
	have, err := t.d.Below(path)
	if err != nil {
		return false, fmt.Errorf("which device is mounted on %s (listed as %s): %w", path, mp.Device, err)
	}
	return have == want, nil
}

// readOnly says whether a mount forbids writing.
func readOnly(mp mount.MountPoint) bool { return slices.Contains(mp.Opts, "ro") }
