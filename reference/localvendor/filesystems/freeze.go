package filesystems

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// The requests of ioctl(2) that make a file system stand still and go on
// (include/uapi/linux/fs.h, FIFREEZE and FITHAW).
const (
	freezeRequest = 0xC0045877
	thawRequest   = 0xC0045878
)

// Standstill lets the file systems of volumes stand still while during runs, with all
// that was written in their images: writers wait meanwhile. A volume that is not
// mounted stands still by itself. None of them is opened, closed or resized meanwhile:
// a file system that is unmounted while it stands still can never go on.
func (h *Host) Standstill(ctx context.Context, volumeIDs []string, during func(context.Context) error) (err error) {
	for _, id := range volumeIDs {
		unlock, ok := h.locks.TryLock(id)
		if !ok {
			return fmt.Errorf("volume %s has another operation under way: %w", id, provisioner.ErrBusy)
		}
		defer unlock()
	}
	mounted, err := h.mounted()
	if err != nil {
		return err
	}
	for _, id := range volumeIDs {
		if mounted[id] == "" {
			continue
		}
		// Kept open, it cannot be unmounted, and is let go on where it stands still.
		root, failed := os.Open(h.path(id))
		if failed == nil {
			defer func() { _ = root.Close() }()
			failed = request(root, freezeRequest)
		}
		if errors.Is(failed, unix.EBUSY) {
			failed = fmt.Errorf("another process has it stand still: %w", provisioner.ErrBusy)
		}
		if failed != nil {
			return fmt.Errorf("have the file system of volume %s stand still: %w", id, failed)
		}
		defer func() { err = errors.Join(err, thaw(root)) }()
	}
	return during(ctx)
}

// thaw lets a file system go on; one that does not stand still is left as it is.
func thaw(root *os.File) error {
	if err := request(root, thawRequest); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("let the file system on %s go on: %w", root.Name(), err)
	}
	return nil
}

func request(root *os.File, what uint) error { return unix.IoctlSetInt(int(root.Fd()), what, 0) }
