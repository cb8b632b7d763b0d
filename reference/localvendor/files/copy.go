package files

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// copyPiece is how much is copied between two looks at the context, in bytes.
const copyPiece = 64 << 20

// Reflink makes dst share the data of src; false if the file system cannot. It
// is of one instant, also during writes (ioctl_ficlone(2)).
func Reflink(dst, src *os.File) (bool, error) {
	err := unix.IoctlFileClone(int(dst.Fd()), int(src.Fd()))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EINVAL):
		return false, nil
	}
	return false, fmt.Errorf("share the data of %s: %w", src.Name(), err)
}

// Copy copies the data of src, and leaves holes where src has some.
func Copy(ctx context.Context, dst, src *os.File) error {
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
