// Package show makes a staged volume seen where the kubelet wants it: it binds /pav/volume, a directory or
// a block device, to the target.
//
// The volume is opened once and bound by what was opened, so what a pod puts in its place meanwhile is
// not shown. A bind is read-only before it is seen by any other process.
package show

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/moor-storage/moor/internal/keylock"
	"github.com/moor-storage/moor/pkg/node/pods/mountinfo"
	"github.com/moor-storage/moor/pkg/node/pods/pavdir"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Want is which volume is to be seen where.
type Want struct {
	// Directory of the helper pods that staged it.
	Directory string
	// Target is where the kubelet wants it.
	Target string
	// Mode that it has to have.
	Mode corev1.PersistentVolumeMode
	// ReadOnly is whether it must not be written there.
	ReadOnly bool
}

// Targets shows volumes of the directories of a root.
type Targets struct {
	root  *pavdir.Root
	locks keylock.Locks
}

// New shows volumes of the directories of root.
func New(root *pavdir.Root) *Targets { return &Targets{root: root} }

// Show makes the volume seen at the target, in place of what another staging left there. To repeat it
// is harmless.
func (t *Targets) Show(w Want) error {
	_, err := t.show(w, false)
	return err
}

// Renew is Show where a volume is seen already: if that is another one, which has been at the place of
// this one before, this one takes its place. It reports whether it did.
//
// Where nothing is seen it does nothing, and stands in no call's way.
func (t *Targets) Renew(w Want) (bool, error) {
	if seen, err := t.Shown(w.Target); err != nil || !seen {
		return false, err
	}
	return t.show(w, true)
}

func (t *Targets) show(w Want, again bool) (changed bool, err error) {
	unlock, err := t.lock(w.Target)
	if err != nil {
		return false, err
	}
	defer unlock()
	v, err := t.root.Volume(w.Directory)
	if err != nil {
		return false, fmt.Errorf("open the staged volume: %w", err)
	}
	defer v.Close()
	if v.Mode != w.Mode {
		return false, fmt.Errorf("the staging pod has made a volume of mode %s, and %s is asked for: %w", v.Mode, w.Mode, provisioner.ErrPrecondition)
	}
	target, err := resolved(w.Target)
	if err != nil {
		return false, err
	}
	all, err := mountinfo.List()
	if err != nil {
		return false, err
	}
	m, mounted := mountinfo.At(all, target)
	if !mounted && again {
		return false, nil
	}
	if mounted {
		same, err := shows(v, m, all, w)
		if err != nil || same {
			return false, err
		}
		if err := unmount(target, true); err != nil {
			return false, err
		}
	}
	if err := place(target, w.Mode); err != nil {
		return false, err
	}
	if err := bindOrGuard(v, target, w); err != nil {
		return false, fmt.Errorf("bind the staged volume to %s: %w", target, err)
	}
	return true, nil
}

// lock takes a target: what is shown anew there must not be hidden meanwhile.
func (t *Targets) lock(target string) (unlock func(), err error) {
	unlock, ok := t.locks.TryLock(target)
	if !ok {
		return nil, fmt.Errorf("another call works on target %s: %w", target, provisioner.ErrBusy)
	}
	return unlock, nil
}

// shows reports whether a mount shows the volume as it is wanted.
func shows(v *pavdir.Volume, m mountinfo.Mount, all []mountinfo.Mount, w Want) (bool, error) {
	if w.ReadOnly && v.Mode == corev1.PersistentVolumeBlock {
		return guards(m.Path, w.Target, v)
	}
	same, err := v.ShownBy(m, all)
	return same && (m.ReadOnly || !w.ReadOnly), err
}

// Hide undoes Show and removes the target. What is not there is success.
func (t *Targets) Hide(target string) error {
	unlock, err := t.lock(target)
	if err != nil {
		return err
	}
	defer unlock()
	path, err := resolved(target)
	if err != nil {
		return err
	}
	if err := unmount(path, false); err != nil {
		return err
	}
	if fi, err := os.Lstat(path); err == nil && !fi.IsDir() {
		if err := release(target); err != nil {
			return err
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the target: %w", err)
	}
	return nil
}

// Shown reports whether there is a mount at a target.
func (t *Targets) Shown(target string) (bool, error) {
	target, err := resolved(target)
	if err != nil {
		return false, err
	}
	all, err := mountinfo.List()
	if err != nil {
		return false, err
	}
	_, is := mountinfo.At(all, target)
	return is, nil
}

// resolved is a target as the mount table has it. What it names is not touched: it may not answer.
func resolved(target string) (string, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(target))
	if errors.Is(err, fs.ErrNotExist) {
		return filepath.Clean(target), nil
	}
	if err != nil {
		return "", fmt.Errorf("find out where target %s is: %w", target, err)
	}
	return filepath.Join(parent, filepath.Base(target)), nil
}

// place makes what a volume is bound to.
func place(target string, mode corev1.PersistentVolumeMode) error {
	made := target
	if mode == corev1.PersistentVolumeBlock {
		made = filepath.Dir(target)
	}
	if err := os.MkdirAll(made, 0o750); err != nil {
		return fmt.Errorf("make the target: %w", err)
	}
	if mode != corev1.PersistentVolumeBlock {
		return nil
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return fmt.Errorf("make the target: %w", err)
	}
	return f.Close()
}

// bindOrGuard binds the volume, or a loop device over it.
func bindOrGuard(v *pavdir.Volume, target string, w Want) error {
	if !w.ReadOnly || v.Mode != corev1.PersistentVolumeBlock {
		return bind(v.FD(), target, w.ReadOnly)
	}
	device, err := guard(v, w.Target)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(device, unix.O_PATH, 0)
	if err != nil {
		return fmt.Errorf("open the read-only loop device: %w", err)
	}
	defer f.Close()
	return bind(int(f.Fd()), target, true)
}

// bind binds what was opened. The bind gets nothing of what is mounted at the volume later, so that
// what the staging pod does there does not keep the target busy.
func bind(source int, target string, readOnly bool) error {
	tree, err := unix.OpenTree(source, "", unix.OPEN_TREE_CLONE|unix.O_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("clone its mount: %w", err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if readOnly {
		attr.Attr_set = unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("set what the mount allows (Linux 5.12 is needed): %w", err)
	}
	at, err := unix.Open(target, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the target: %w", err)
	}
	defer unix.Close(at)
	if err := unix.MoveMount(tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount it: %w", err)
	}
	return nil
}

// stacked bounds how often the mount table is read again for mounts on top of one another.
const stacked = 16

// unmount ends all mounts on a target. One that is in use is ErrBusy, unless the volume in it is dead:
// then no user of it can succeed any more, and it is taken out of sight.
func unmount(target string, dead bool) error {
	for range stacked {
		all, err := mountinfo.List()
		if err != nil {
			return err
		}
		on := mountinfo.Beneath(all, target)
		if len(on) == 0 {
			return nil
		}
		for _, m := range on {
			err := unix.Unmount(m.Path, unix.UMOUNT_NOFOLLOW)
			if errors.Is(err, unix.EBUSY) && dead {
				err = unix.Unmount(m.Path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
			}
			switch {
			case err == nil, errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // gone with another
			case errors.Is(err, unix.EBUSY):
				return fmt.Errorf("unmount %s: a process still uses it: end it, then it is tried again: %w", m.Path, provisioner.ErrBusy)
			default:
				return fmt.Errorf("unmount %s: %w", m.Path, err)
			}
		}
	}
	return fmt.Errorf("unmount %s: more than %d mounts lie on it: %w", target, stacked, provisioner.ErrBusy)
}
