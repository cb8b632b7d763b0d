package hostdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// WaitSize waits until the namespace that id means has at least bytes, and
// returns its size. The kernel looks at a namespace again when its controller
// says that it changed; one that has not said so is asked to be looked at.
// ErrAbsent while it is smaller, or not there.
func (f *Finder) WaitSize(ctx context.Context, id Identity, bytes int64) (int64, error) {
	var size int64
	asked := false
	err := poll(ctx, f.clock(), func() error {
		b, err := f.Seek(id)
		if err != nil {
			return err
		}
		if size = b.SizeBytes; size >= bytes {
			return nil
		}
		small := fmt.Errorf("namespace %d of PCI function %s has %d bytes, not %d yet: %w", b.NamespaceID, b.Address, size, bytes, ErrAbsent)
		if asked {
			return small
		}
		err = f.askRescan(b.Address)
		asked = err == nil
		return errors.Join(small, err)
	})
	return size, err
}

// askRescan has the kernel look at all namespaces of a function again
// (drivers/nvme/host/sysfs.c, nvme_sysfs_rescan). A tree without that attribute needs no asking.
func (f *Finder) askRescan(address string) error {
	controllers, err := os.ReadDir(f.Roots.sys("bus/pci/drivers/nvme", address, "nvme"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list the NVMe controllers of %s: %w", address, err)
	}
	for _, c := range controllers {
		path := f.Roots.sys("bus/pci/drivers/nvme", address, "nvme", c.Name(), "rescan_controller")
		if err := writeAttr(path, "1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("have the kernel look at %s again: %w", c.Name(), err)
		}
	}
	return nil
}
