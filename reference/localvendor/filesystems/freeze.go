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
// mounted stands still by itself.
func (h *Host) Standstill(ctx context.Context, volumeIDs []string, during func(context.Context) error) (err error) {
	mounted, err := h.mounted()
	if err != nil {
		return err
	}
	for _, id := range volumeIDs {
		if mounted[id] == "" {
			continue
		}
		path := h.path(id)
		if err := request(path, freezeRequest); err != nil {
			if errors.Is(err, unix.EBUSY) {
				err = fmt.Errorf("another process has it stand still: %w", provisioner.ErrBusy)
			}
			return fmt.Errorf("have the file system of volume %s stand still: %w", id, err)
		}
		defer func() { err = errors.Join(err, thaw(path)) }()
	}
	return during(ctx)
}

// thaw lets a file system go on; one that does not stand still is left as it is.
func thaw(path string) error {
	if err := request(path, thawRequest); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("let the file system on %s go on: %w", path, err)
	}
	return nil
}

func request(path string, what uint) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.IoctlSetInt(int(d.Fd()), what, 0), d.Close())
}
