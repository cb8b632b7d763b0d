package csi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
	List() ([]Mount, error)
	// Detach takes the mount out of the tree at once and leaves the rest to
	// the kernel, which ends it when its last user goes (MNT_DETACH).
	Detach(target string) error
}

// Mount is a line of the mount table.
type Mount struct {
	mount.MountPoint
	// Root is what is shown of the file system: "/" is all of it, anything else a
	// directory or a file in it, which was bound.
	Root string
	// Filesystem is the number of the file system, as "8:1": many may have the same
	// Device, such as "tmpfs".
	Filesystem string
	// Super are those of the options that are of the file system, and so of all its mounts.
	Super []string
}

// whole says whether all of a file system is shown.
func (m Mount) whole() bool { return m.Root == "/" }

// deleted is how the kernel marks the root of a mount that was removed since
// (proc_pid_mountinfo(5)).
const deleted = "//deleted"

// shows says whether the mount shows all or a part of what other shows.
func (m Mount) shows(other Mount) bool {
	return m.Filesystem == other.Filesystem && (other.whole() || m.Root == other.Root || strings.HasPrefix(m.Root, other.Root+"/"))
}

// NewMounter is the Mounter of the machine.
func NewMounter() Mounter { return realMounter{mount.New("")} }

type realMounter struct{ mount.Interface }

// List reads the table from mountinfo, since /proc/mounts does not tell what is
// shown of a file system.
func (realMounter) List() ([]Mount, error) {
	infos, err := mount.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	out := make([]Mount, 0, len(infos))
	for _, i := range infos {
		out = append(out, Mount{
			Root: i.Root, Filesystem: fmt.Sprintf("%d:%d", i.Major, i.Minor), Super: i.SuperOptions,
			MountPoint: mount.MountPoint{Device: i.Source, Path: i.MountPoint, Type: i.FsType, Opts: i.MountOptions},
		})
	}
	return out, nil
}

func (realMounter) Detach(target string) error {
	return unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
}

// Devices answers what lies where; HostDevices is the machine.
type Devices interface {
	// Number is the number of the block device at path.
	Number(path string) (uint64, error)
	// Below is the number of the device that the file system at path is on.
	Below(path string) (uint64, error)
	// Same says whether both paths are one and the same directory.
	Same(a, b string) (bool, error)
	// Readable says whether the device at path still answers: hostdev.ErrHung if it
	// has not for some seconds.
	Readable(path string) error
	// Size is the size of the device at path, in bytes.
	Size(path string) (int64, error)
	// Usage is how full the file system at path is.
	Usage(path string) (Usage, error)
}

// HostDevices is the Devices of the machine.
type HostDevices struct{ reads *hostdev.Reads }

// NewHostDevices are the devices of the machine.
func NewHostDevices() HostDevices { return HostDevices{&hostdev.Reads{}} }

// Number implements Devices.
func (HostDevices) Number(path string) (uint64, error) { return hostdev.DeviceNumber(path) }

// Below implements Devices.
func (HostDevices) Below(path string) (uint64, error) { return hostdev.FilesystemDevice(path) }

// Same implements Devices.
func (HostDevices) Same(a, b string) (bool, error) {
	first, err := os.Stat(a)
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", a, err)
	}
	second, err := os.Stat(b)
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", b, err)
	}
	return os.SameFile(first, second), nil
}

// Readable implements Devices.
func (d HostDevices) Readable(path string) error { return d.reads.Readable(path) }

// mounts reads and changes the mount table.
type mounts struct {
	m Mounter
	d Devices
}

// at is the topmost mount on path, and whether there is one. It reads the table
// and does not touch path, which may lie on a device that no longer answers.
func (t mounts) at(path string) (Mount, bool, error) {
	list, err := t.m.List()
	if err != nil {
		return Mount{}, false, fmt.Errorf("read the mount table: %w", err)
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
	return Mount{}, false, nil
}

// holding is the mount that a path lies in.
func holding(all []Mount, path string) Mount {
	var out Mount
	for _, mp := range all {
		if inside := mp.Path == path || strings.HasPrefix(path, strings.TrimSuffix(mp.Path, "/")+"/"); inside && len(mp.Path) >= len(out.Path) {
			out = mp
		}
	}
	return out
}

// maxStacked bounds how many mounts on top of one another clear removes.
const maxStacked = 16

// clear unmounts everything on path; nothing there is success. A mount in use
// is ErrBusy, unless its device is dead: then it is detached lazily, since no
// user of it can succeed any more. A file system that the kernel has given up on a device
// that lives is not: it would stay, and be what the next mount of the device shows.
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

func (t mounts) unmount(path string, mp Mount) error {
	err := t.m.Unmount(path)
	if err == nil {
		return nil
	}
	dead := t.dead(path, mp)
	if dead == nil || errors.Is(dead, hostdev.ErrHung) {
		return fmt.Errorf("unmount %s: %v; a process may still use it: end it, then it is tried again: %w", path, err, provisioner.ErrBusy)
	}
	if lazy := t.m.Detach(path); lazy != nil {
		return fmt.Errorf("unmount %s, whose device is dead (%v): %v; and lazily: %w", path, dead, err, lazy)
	}
	return nil
}

// dead says why what is under the mount does not answer; nil if it does. A
// directory that was bound is dead once it was removed: the disk that it was on,
// which others use too, says nothing about it.
func (t mounts) dead(path string, mp Mount) error {
	fi, err := os.Stat(path)
	if err != nil && mount.IsCorruptedMnt(err) {
		return err
	}
	if strings.HasSuffix(mp.Root, deleted) {
		return fmt.Errorf("%s, which was mounted on %s, was removed", strings.TrimSuffix(mp.Root, deleted), path)
	}
	if err == nil && fi.IsDir() && !mp.whole() {
		return nil
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
func (t mounts) renamed(path string, mp Mount) error {
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

// bind shows source on target too, with the options of a mount. mount-utils binds
// first and remounts with the options after, as one mount(2) cannot do both.
func (t mounts) bind(source, target string, options []string) error {
	if err := t.m.Mount(source, target, "", append([]string{"bind"}, options...)); err != nil {
		// A bind whose remount failed would be writable: take it back.
		if undo := t.clear(target); undo != nil {
			return fmt.Errorf("bind %s: %w; and take it back: %w", source, err, undo)
		}
		return fmt.Errorf("bind %s: %w", source, err)
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
func (t mounts) sameDevice(path string, mp Mount, device string) (bool, error) {
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

// readOnly says whether a mount, or the file system under it, forbids writing.
func readOnly(mp Mount) bool {
	return slices.Contains(mp.Opts, "ro") || slices.Contains(mp.Super, "ro")
}

// Broken says why what a mount shows is of no use, so that only a new mount helps; nil if
// that is not known. It may take seconds where a device hangs.
func (s *Server) Broken(path string, m Mount) error { return s.mounts.broken(path, m) }

// broken says why what is mounted on path is of no use, so that it has to be mounted anew:
// its device is dead, or the kernel has given the file system up. nil if neither is known.
// A device that hangs is not broken.
func (t mounts) broken(path string, mp Mount) error {
	if why := hostdev.GivenUp(mp.Opts, mp.Super); why != "" {
		return fmt.Errorf("%s, which is mounted on %s: %s", mp.Device, path, why)
	}
	if dead := t.dead(path, mp); !errors.Is(dead, hostdev.ErrHung) {
		return dead
	}
	return nil
}
