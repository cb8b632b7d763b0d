package localvendor

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/blocktarget"
)

// copyPiece is how much is copied between two looks at the context, in bytes.
const copyPiece = 64 << 20

// reflink makes dst share the data of src; false if the file system cannot. It
// is of one instant, whoever writes (ioctl_ficlone(2)).
func reflink(dst, src *os.File) (bool, error) {
	err := unix.IoctlFileClone(int(dst.Fd()), int(src.Fd()))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EINVAL):
		return false, nil
	}
	return false, fmt.Errorf("share the data of %s: %w", src.Name(), err)
}

// copySparse copies the data of src, and leaves holes where src has some.
func copySparse(ctx context.Context, dst, src *os.File) error {
	st, err := src.Stat()
	if err != nil {
		return err
	}
	if err := dst.Truncate(st.Size()); err != nil {
		return err
	}
	for at := int64(0); at < st.Size(); {
		start, end, err := nextData(src, at)
		if errors.Is(err, unix.ENXIO) { // only a hole is left
			return nil
		}
		if err != nil {
			return fmt.Errorf("find the data of %s: %w", src.Name(), err)
		}
		if err := copyRange(ctx, dst, src, start, end); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// nextData is the first stretch of data at or after a place.
func nextData(f *os.File, at int64) (start, end int64, err error) {
	if start, err = f.Seek(at, unix.SEEK_DATA); err != nil {
		return 0, 0, err
	}
	end, err = f.Seek(start, unix.SEEK_HOLE)
	return start, end, err
}

func copyRange(ctx context.Context, dst, src *os.File, from, to int64) error {
	for from < to {
		if err := ctx.Err(); err != nil {
			return err
		}
		in, out := from, from
		n, err := unix.CopyFileRange(int(src.Fd()), &in, int(dst.Fd()), &out, int(min(to-from, copyPiece)), 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("copy %s: %w", src.Name(), err)
		case n == 0:
			return fmt.Errorf("copy %s: it ends at byte %d, before byte %d", src.Name(), from, to)
		}
		from += int64(max(n, 0))
	}
	return nil
}

// pair is an image and the draft of its copy.
type pair struct {
	volume string
	have   record // what is known of the volume; zero for a snapshot
	image  string
	draft  *draft
}

// copyAll fills the drafts with what their images hold at one instant. Volumes
// that nobody may write to hold still. Of the others, a reflink is of one
// instant, if there is one only; else the target has to hold the writers up.
func (s *Storage) copyAll(ctx context.Context, pairs ...pair) error {
	var written []string
	for _, p := range pairs {
		if p.have.written() {
			written = append(written, p.volume)
		}
	}
	if len(pairs) == 1 || len(written) == 0 {
		if done, err := s.reflinkAll(pairs); done || err != nil {
			return err
		}
	}
	if len(written) == 0 {
		return plainCopy(ctx, pairs)
	}
	if s.target == nil || s.target.Data == nil {
		return fmt.Errorf("volumes %v are in use, the file system of %s cannot copy at one instant, and no target can hold their writers up: detach them first: %w",
			written, s.dir, provisioner.ErrPrecondition)
	}
	return s.copyPaused(ctx, written, pairs)
}

// copyPaused copies while the writers wait.
func (s *Storage) copyPaused(ctx context.Context, written []string, pairs []pair) error {
	ctx, cancel := context.WithTimeout(ctx, blocktarget.MaxPause)
	defer cancel()
	err := s.target.Data.Pause(ctx, written, func(ctx context.Context) error {
		if done, err := s.reflinkAll(pairs); done || err != nil {
			return err
		}
		return plainCopy(ctx, pairs)
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("copy volumes %v while their writers wait: more than %s are not allowed, detach them or use a file system with reflinks: %w: %w",
			written, blocktarget.MaxPause, provisioner.ErrUnavailable, err)
	case errors.Is(err, blocktarget.ErrUnreachable):
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	return err
}

// reflinkAll copies by reflink; done is false if the file system has none.
func (s *Storage) reflinkAll(pairs []pair) (done bool, err error) {
	for _, p := range pairs {
		done, err := withImage(p.image, func(src *os.File) (bool, error) { return s.reflink(p.draft.File, src) })
		if err != nil || !done {
			return false, err
		}
	}
	return true, nil
}

func plainCopy(ctx context.Context, pairs []pair) error {
	for _, p := range pairs {
		_, err := withImage(p.image, func(src *os.File) (bool, error) { return true, copySparse(ctx, p.draft.File, src) })
		if err != nil {
			return err
		}
	}
	return nil
}

func withImage(path string, act func(*os.File) (bool, error)) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("its image %s is gone, restore it from a backup: %w", path, provisioner.ErrPrecondition)
	}
	if err != nil {
		return false, err
	}
	done, err := act(f)
	return done, errors.Join(err, f.Close())
}

// copyError gives an error of a copy its kind.
func copyError(err error) error {
	if noRoom(err) {
		return fmt.Errorf("%w: %w", provisioner.ErrExhausted, err)
	}
	return err
}

// written reports whether somebody may write to the volume.
func (r record) written() bool {
	for _, h := range r.Attachments {
		if !h.ReadOnly && !readOnlyModes(h.AccessModes) {
			return true
		}
	}
	return false
}
