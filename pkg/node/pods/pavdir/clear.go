package pavdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/pkg/node/pods/mountinfo"
)

// ErrBusy means that a mount is used by a process yet.
var ErrBusy = errors.New("a process may still use it: end it, then it is tried again")

// A directory that is removed is first renamed to gone, its own name and a new one, with mark between
// them: from then on a pod of the same name gets an empty directory, and a removal that was cut off is
// known by the name. No directory of a pod has such a name.
const (
	gone = ".gone"
	mark = "~"
)

// Clear removes a directory: it unmounts all that is mounted in it, and removes all files. What is not
// there is success. No process may have it as /pav any more.
//
// A mount that is in use is ErrBusy, unless lazily: then it is taken out of sight, and the kernel ends it
// when its last user goes. It returns what it unmounted in that way.
func (r *Root) Clear(ctx context.Context, directory string, lazily bool) (detached []string, err error) {
	if err := CheckName(directory); err != nil {
		return nil, err
	}
	c := clearing{ctx: ctx, lazily: lazily}
	if err := r.setAside(&c, directory); err != nil {
		return c.detached, fmt.Errorf("clear %s: %w", r.Path(directory), err)
	}
	return r.finish(&c, directory)
}

// Finish goes on with what Clear has begun for a directory, and leaves one alone that has its name by now.
func (r *Root) Finish(ctx context.Context, directory string, lazily bool) (detached []string, err error) {
	if err := CheckName(directory); err != nil {
		return nil, err
	}
	return r.finish(&clearing{ctx: ctx, lazily: lazily}, directory)
}

func (r *Root) finish(c *clearing, directory string) (detached []string, err error) {
	err = r.purgeAll(c, directory)
	if err != nil {
		return c.detached, fmt.Errorf("clear %s: %w", r.Path(directory), err)
	}
	return c.detached, nil
}

// Entries are the directories beneath the root that a pod can have, and those that are being removed, by
// the names that they had.
func (r *Root) Entries() (directories, removed []string, err error) {
	all, err := os.ReadDir(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the root of the directories of helper pods: %w", err)
	}
	for _, e := range all {
		switch was := nameBefore(e.Name()); {
		case was != "":
			removed = append(removed, was)
		case e.IsDir() && CheckName(e.Name()) == nil:
			directories = append(directories, e.Name())
		}
	}
	return directories, removed, nil
}

// Has reports whether there is a directory, or another file in its place.
func (r *Root) Has(directory string) (bool, error) {
	if CheckName(directory) != nil {
		return false, nil
	}
	_, err := os.Lstat(r.Path(directory))
	return err == nil, ignoreAbsent(err)
}

// nameBefore is the name that a directory had that is being removed; empty if it is none.
func nameBefore(name string) string {
	parts := strings.Split(name, mark)
	if len(parts) != 3 || parts[0] != gone || CheckName(parts[1]) != nil {
		return ""
	}
	return parts[1]
}

// clearing is one run of Clear.
type clearing struct {
	ctx      context.Context
	lazily   bool
	detached []string
}

// setAside takes the directory its name. A mount on it would keep it.
func (r *Root) setAside(c *clearing, directory string) error {
	path, err := r.resolved(directory)
	if err != nil {
		return ignoreAbsent(err)
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := c.unmount(path, func(m mountinfo.Mount) bool { return m.Path == path }); err != nil {
		return err
	}
	err = os.Rename(path, r.Path(strings.Join([]string{gone, directory, uuid.NewString()}, mark)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// resolved is the path of a name as the mount table has it, without links above the root.
func (r *Root) resolved(name string) (string, error) {
	root, err := filepath.EvalSymlinks(r.path)
	return filepath.Join(root, name), err
}

// ignoreAbsent takes it for no error that something is not there: it is gone, or never was.
func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// purgeAll removes what had the name.
func (r *Root) purgeAll(c *clearing, directory string) error {
	all, err := os.ReadDir(r.path)
	if err != nil {
		return ignoreAbsent(err)
	}
	var errs []error
	for _, e := range all {
		if nameBefore(e.Name()) == directory {
			errs = append(errs, r.purge(c, e.Name()))
		}
	}
	return errors.Join(errs...)
}

func (r *Root) purge(c *clearing, name string) error {
	path, err := r.resolved(name)
	if err != nil {
		return err
	}
	if err := c.unmount(path, func(mountinfo.Mount) bool { return true }); err != nil {
		return err
	}
	top, err := r.openAny(name)
	if p, wrong := errors.AsType[Problem](err); wrong && p.words != hidden {
		// It is no directory: no pod had it.
		return ignoreAbsent(os.Remove(path))
	}
	if err != nil {
		return ignoreAbsent(err)
	}
	defer top.Close()
	if err := c.empty(top); err != nil {
		return err
	}
	return ignoreAbsent(os.Remove(path))
}

// rounds bounds how often the mount table is read again because something was mounted meanwhile, or lay
// beneath what was unmounted.
const rounds = 64

// unmount ends those mounts on a path and beneath it that are chosen, the deepest first.
func (c *clearing) unmount(path string, chosen func(mountinfo.Mount) bool) error {
	for range rounds {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		all, err := mountinfo.List()
		if err != nil {
			return err
		}
		n := 0
		for _, m := range mountinfo.Beneath(all, path) {
			if !chosen(m) {
				continue
			}
			if err := c.end(m.Path); err != nil {
				return err
			}
			n++
		}
		if n == 0 {
			return nil
		}
	}
	return fmt.Errorf("unmount what lies beneath %s: something is mounted there again and again: %w", path, ErrBusy)
}

// end ends the topmost mount on a path.
func (c *clearing) end(path string) error {
	err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	switch {
	case err == nil, errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return nil // it is gone with another; the table says whether it is
	case !errors.Is(err, unix.EBUSY):
		return fmt.Errorf("unmount %s: %w", path, err)
	case !c.lazily:
		return fmt.Errorf("unmount %s: %v; %w", path, err, ErrBusy)
	}
	if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s lazily: %w", filepath.Clean(path), err)
	}
	c.detached = append(c.detached, path)
	return nil
}
