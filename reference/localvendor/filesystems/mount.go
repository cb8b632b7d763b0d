package filesystems

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor/files"
	"github.com/moor-storage/moor/reference/loopdev"
)

// label is how the loop device of an image is known: no two images of this machine
// have the same.
func label(image string) string {
	sum := sha256.Sum256([]byte(image))
	return "moor-fs." + hex.EncodeToString(sum[:16])
}

// loopOf returns the loop device of an image, nil if it has none.
func loopOf(image string) (*loopdev.Device, error) {
	all, err := loopdev.All(label(image))
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return all[0], nil
}

// mount makes the file system of a volume if its image is blank, checks it, lets it
// have all of the image, and mounts it.
func (h *Host) mount(ctx context.Context, id string, readOnly bool) error {
	d, err := loopdev.Attach(h.image(id), label(h.image(id)), loopdev.Options{Passing: true})
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("its image is gone, restore it from a snapshot or a backup: %w: %w", provisioner.ErrPrecondition, err)
	}
	if err != nil {
		return err
	}
	defer d.Release()
	made, err := h.formatter.Ensure(ctx, d.Path, Type, readOnly)
	options := []string{"ro"}
	if err == nil && !readOnly {
		options = nil
		if err = h.formatter.Check(ctx, d.Path, Type); err == nil {
			_, err = h.formatter.Grow(ctx, d.Path, Type, "")
		}
	}
	if err != nil {
		return kind(err)
	}
	path := h.path(id)
	if err := files.MakeDir(path); err != nil {
		return err
	}
	if err := h.mounter.Mount(d.Path, path, Type, options); err != nil {
		return fmt.Errorf("mount its file system: %w", err)
	}
	if made {
		h.o.Log.Info("made a file system", "volume", id, "type", Type)
	}
	if err := contentIn(path, readOnly); err != nil {
		return errors.Join(err, h.mounter.Unmount(path))
	}
	return nil
}

// unfinished is the directory of the volume before it has its mode.
const unfinished = content + ".new"

// contentIn makes the directory that is the volume in a file system, if it is missing: the
// file system is new, or a process ended before it had made it.
func contentIn(path string, readOnly bool) error {
	dir := filepath.Join(path, content)
	st, err := os.Lstat(dir)
	switch {
	case err == nil && st.IsDir():
		return nil
	case err == nil:
		return fmt.Errorf("%s of its file system is no directory: %w", content, provisioner.ErrPrecondition)
	case !errors.Is(err, os.ErrNotExist):
		return err
	case readOnly:
		return fmt.Errorf("it holds no directory yet, use the volume once for writing: %w", provisioner.ErrPrecondition)
	}
	found, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range found {
		if e.Name() != "lost+found" && e.Name() != unfinished {
			return fmt.Errorf("its file system has %q at its root, and no directory %q for the files of users, as an earlier version made them: move them there: %w", e.Name(), content, provisioner.ErrPrecondition)
		}
	}
	// The name is there only with its mode.
	whole := filepath.Join(path, unfinished)
	if err := errors.Join(os.MkdirAll(whole, 0o700), os.Chmod(whole, contentMode)); err != nil {
		return fmt.Errorf("make the directory of the volume: %w", err)
	}
	return os.Rename(whole, dir)
}

// kind gives an error of package hostdev the sentinel that callers act on.
func kind(err error) error {
	for _, row := range []struct{ from, to error }{
		{hostdev.ErrForeign, provisioner.ErrPrecondition},
		{hostdev.ErrBlankReadOnly, provisioner.ErrPrecondition},
		{hostdev.ErrPrivilege, provisioner.ErrPrecondition},
		{hostdev.ErrBusy, provisioner.ErrBusy},
	} {
		if errors.Is(err, row.from) {
			return fmt.Errorf("%w: %w", err, row.to)
		}
	}
	return err
}

// fit lets the mounted file system of a volume have all of its image, and returns the
// size of that in bytes, if it is atLeast that large. One that is mounted for reading
// grows when it is mounted for writing next.
func (h *Host) fit(ctx context.Context, id string, atLeast int64) (int64, error) {
	d, err := loopOf(h.image(id))
	if err != nil {
		return 0, err
	}
	mounted, err := h.mounted()
	if err != nil {
		return 0, err
	}
	if d == nil || mounted[id] != d.Path {
		return 0, fmt.Errorf("%s is mounted on %s, and is not the device of its image: unmount it there: %w", mounted[id], h.path(id), provisioner.ErrPrecondition)
	}
	if err := d.Refresh(); err != nil {
		return 0, err
	}
	size, err := hostdev.Size(d.Path)
	if err == nil && size < atLeast {
		err = fmt.Errorf("its image has %d bytes yet, not %d: %w", size, atLeast, provisioner.ErrUnavailable)
	}
	if err != nil {
		return 0, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(h.path(id), &st); err != nil {
		return 0, fmt.Errorf("look at its file system: %w", err)
	}
	if st.Flags&unix.ST_RDONLY == 0 {
		grown, err := h.formatter.Grow(ctx, d.Path, Type, h.path(id))
		if err != nil {
			return 0, kind(err)
		}
		if grown {
			h.o.Log.Info("the file system grew", "volume", id)
		}
	}
	return size, nil
}
