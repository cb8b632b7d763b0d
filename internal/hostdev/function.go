package hostdev

import (
	"context"
	"errors"
	"fmt"
)

// virtioDriver is the driver of virtio functions, those of virtio-fs among them.
const virtioDriver = "virtio-pci"

// SharedBy returns nil if the function of a virtio-fs device is there and has
// its driver: then the file system can be mounted by its tag. It never waits.
// ErrAbsent and ErrAddress are as for Find.
func (f *Finder) SharedBy(address string) error {
	addr, err := NormalizeAddress(address)
	if err != nil {
		return err
	}
	driver, err := f.Driver(addr)
	switch {
	case err != nil:
		return err
	case driver != virtioDriver:
		return fmt.Errorf("PCI function %s has driver %q, want %s: %w", addr, driver, virtioDriver, ErrAbsent)
	}
	return nil
}

// WaitShared is SharedBy repeated until it succeeds or ctx ends. With BindShared
// set, a function with another driver, or none, is bound on the way.
func (f *Finder) WaitShared(ctx context.Context, address string) error {
	err := poll(ctx, f.clock(), func() error {
		err := f.SharedBy(address)
		if err == nil || !f.BindShared || !errors.Is(err, ErrAbsent) {
			return err
		}
		if bindErr := f.bindTo(address, virtioDriver); bindErr != nil {
			return fmt.Errorf("%w; %w", err, bindErr)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for the virtio-fs function at %s: %w", address, err)
	}
	return nil
}
