package localvendor

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// Expand makes the image longer, and then the record say so. See
// provisioner.Expansion.
func (s *Storage) Expand(ctx context.Context, id string, bytes, limit int64) (int64, error) {
	size, err := s.expand(ctx, id, bytes, limit)
	if err != nil {
		return 0, fmt.Errorf("expand volume %q to %d bytes: %w", id, bytes, err)
	}
	return size, nil
}

func (s *Storage) expand(ctx context.Context, id string, bytes, limit int64) (int64, error) {
	if bytes < 0 || limit < 0 {
		return 0, fmt.Errorf("a size of %d with limit %d bytes makes no sense: %w", bytes, limit, provisioner.ErrInvalid)
	}
	unlock, err := s.lock(id)
	if err != nil {
		return 0, err
	}
	defer unlock()
	have, err := s.existing(id)
	if err != nil {
		return 0, err
	}
	if limit > 0 && have.CapacityBytes > limit {
		return 0, fmt.Errorf("it has %d bytes, more than the limit of %d, and cannot shrink: %w", have.CapacityBytes, limit, provisioner.ErrOutOfRange)
	}
	if bytes > 0 && bytes <= have.CapacityBytes || bytes == 0 && limit == 0 {
		return have.CapacityBytes, nil
	}
	size, err := sizeOf(max(bytes, have.CapacityBytes), limit, s.maxBytes)
	if err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if !have.shared() { // a directory has no end
		if err := s.lengthen(id, have, size); err != nil {
			return 0, err
		}
	}
	have.CapacityBytes = size
	return size, s.save(id, have)
}

// existing loads the record of a volume that has to be there.
func (s *Storage) existing(id string) (record, error) {
	have, found, err := s.load(id)
	if err != nil {
		return record{}, err
	}
	if !found {
		return record{}, fmt.Errorf("the volume does not exist: %w", provisioner.ErrNotFound)
	}
	return have, nil
}

// fits says whether a volume of size bytes has room on a file system of total
// bytes, of which free are free.
func (r record) fits(size, total, free int64) bool {
	return size <= total && (r.Provisioning != Thick || size-r.CapacityBytes <= free)
}

// lengthen makes the image size bytes long. One that is, of a call that was cut
// short, is left alone; it never becomes shorter.
func (s *Storage) lengthen(id string, have record, size int64) (err error) {
	total, free, err := s.space()
	if err != nil {
		return err
	}
	if !have.fits(size, total, free) {
		return fmt.Errorf("%s has %d bytes, of which %d are free: %w", s.dir, total, free, provisioner.ErrExhausted)
	}
	f, err := os.OpenFile(s.imagePath(id), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open its image: %w", err)
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	switch {
	case st.Size() >= size:
	case have.Provisioning == Thick:
		err = unix.Fallocate(int(f.Fd()), 0, st.Size(), size-st.Size())
	default:
		err = f.Truncate(size)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return copyError(fmt.Errorf("make its image longer: %w", err))
	}
	return nil
}
