package localvendor

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// The parameters of a VolumeAttributesClass: how much all nodes together may do
// with the volume, reads and writes alike; 0 is no limit.
const (
	ParameterBytesPerSecond = "bytesPerSecond"
	ParameterIOPS           = "iops"
)

// limitable reports whether limits take effect.
func (s *Storage) limitable() bool { return s.target != nil && s.target.Data != nil }

// Modify changes the limits of a volume, at once for those who have it open. See
// provisioner.Change.
func (s *Storage) Modify(ctx context.Context, id string, parameters map[string]string) error {
	if err := s.modify(ctx, id, parameters); err != nil {
		return fmt.Errorf("modify volume %q: %w", id, err)
	}
	return nil
}

func (s *Storage) modify(ctx context.Context, id string, parameters map[string]string) error {
	unlock, err := s.lock(id)
	if err != nil {
		return err
	}
	defer unlock()
	have, found, err := s.load(id)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("the volume does not exist: %w", provisioner.ErrNotFound)
	}
	want, err := s.limitsOf(have.Limits, parameters)
	if err != nil {
		return err
	}
	if want != have.Limits {
		have.Limits = want
		if err := checkDirectory(have); err != nil {
			return err
		}
		if err := s.save(id, have); err != nil {
			return err
		}
	}
	// Also if nothing changed: an earlier call may not have reached the target.
	if s.limitable() {
		if err := s.target.Data.Adjust(ctx, id); err != nil {
			return fmt.Errorf("the limits hold from the next opening on, repeat to have them hold now: %w: %w", provisioner.ErrUnavailable, err)
		}
	}
	return nil
}

// limitsOf returns have with what the parameters say.
func (s *Storage) limitsOf(have records.Limits, parameters map[string]string) (records.Limits, error) {
	for _, k := range slices.Sorted(maps.Keys(parameters)) {
		into, least := &have.BytesPerSecond, int64(blocktarget.LeastBytesPerSecond)
		switch k {
		case ParameterBytesPerSecond:
		case ParameterIOPS:
			into, least = &have.IOPS, blocktarget.LeastIOPS
		default:
			return records.Limits{}, fmt.Errorf("unknown parameter %q: only %s and %s can change: %w", k, ParameterBytesPerSecond, ParameterIOPS, provisioner.ErrInvalid)
		}
		n, err := strconv.ParseInt(parameters[k], 10, 64)
		if err != nil || n < 0 || n > 0 && n < least {
			return records.Limits{}, fmt.Errorf("parameter %s is %q: a number from %d on is wanted, or 0 for no limit: %w", k, parameters[k], least, provisioner.ErrInvalid)
		}
		*into = n
	}
	if have != (records.Limits{}) && !s.limitable() {
		return records.Limits{}, fmt.Errorf("limits need a target, which this controller has not: %w", provisioner.ErrInvalid)
	}
	return have, nil
}

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
	if !have.Shared() { // a directory has no end
		if err := s.lengthen(id, have, size); err != nil {
			return 0, err
		}
	}
	have.CapacityBytes = size
	return size, s.save(id, have)
}

// existing loads the record of a volume that has to be there.
func (s *Storage) existing(id string) (records.Volume, error) {
	have, found, err := s.load(id)
	if err != nil {
		return records.Volume{}, err
	}
	if !found {
		return records.Volume{}, fmt.Errorf("the volume does not exist: %w", provisioner.ErrNotFound)
	}
	return have, nil
}

// lengthen makes the image size bytes long. One that is, of a call that was cut
// short, is left alone; it never becomes shorter.
func (s *Storage) lengthen(id string, have records.Volume, size int64) (err error) {
	total, free, err := s.space()
	if err != nil {
		return err
	}
	if !have.Fits(size, total, free) {
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
	case have.Provisioning == records.Thick:
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
