package hostdev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// virtioDriver is the driver of virtio functions, those of virtio-fs among them.
	virtioDriver = "virtio-pci"
	// virtioFS is the driver of the file system on such a function.
	virtioFS = "virtiofs"
)

// SharedBy returns nil if the function of a virtio-fs device is there and has
// its driver: then the file system can be mounted by its tag. Of id the address
// and the VUID count. It never waits. Errors are as for Seek.
func (f *Finder) SharedBy(id Identity) error {
	addr, err := f.locateShared(id)
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
// set, a function with another driver, or none, is bound on the way, and the
// file system's driver loaded.
func (f *Finder) WaitShared(ctx context.Context, id Identity) error {
	err := poll(ctx, f.clock(), func() error {
		err := f.SharedBy(id)
		if err == nil || !f.BindShared || !errors.Is(err, ErrAbsent) {
			return err
		}
		if bindErr := f.bindShared(ctx, id); bindErr != nil {
			return fmt.Errorf("%w; %w", err, bindErr)
		}
		return err
	})
	if err == nil && f.BindShared {
		// If that fails: the mount has the kernel load it, too (fs/filesystems.c, get_fs_type).
		_ = f.load(ctx, f.Roots.sys("bus/virtio/drivers", virtioFS), virtioFS)
	}
	if err != nil {
		return fmt.Errorf("wait for the virtio-fs function at %s: %w", id.Address, err)
	}
	return nil
}

// bindShared binds the driver of virtio if another driver, or none, has the
// function. That it is not there, or has another VUID, is not an error.
func (f *Finder) bindShared(ctx context.Context, id Identity) error {
	addr, err := f.locateShared(id)
	if err == nil {
		err = f.BindDriver(ctx, addr, virtioDriver)
	}
	if errors.Is(err, ErrAbsent) {
		return nil
	}
	return err
}

// Share is a file system that a virtio-fs function shows.
type Share struct {
	// Tag is what it is mounted by, Address that of the PCI function.
	Tag, Address string
}

// Shares lists the file systems that can be mounted, ordered by tag. The kernel
// tells of them since Linux 6.9 (Documentation/ABI/testing/sysfs-fs-virtiofs);
// an older one shows none.
func (f *Finder) Shares() ([]Share, error) {
	found, err := filepath.Glob(f.Roots.sys("fs/virtiofs/*/tag"))
	if err != nil {
		return nil, fmt.Errorf("list virtio-fs devices: %w", err)
	}
	var out []Share
	for _, path := range found {
		tag, err := readTrimmed(path)
		address := functionOf(filepath.Join(filepath.Dir(path), "device"))
		if err == nil && tag != "" && address != "" { // or else it is on its way out
			out = append(out, Share{Tag: tag, Address: address})
		}
	}
	slices.SortFunc(out, func(a, b Share) int {
		return cmp.Or(strings.Compare(a.Tag, b.Tag), strings.Compare(a.Address, b.Address))
	})
	return out, nil
}

// functionOf is the address of the PCI function above a device in sysfs; empty
// if there is none.
func functionOf(device string) string {
	path, err := filepath.EvalSymlinks(device)
	if err != nil {
		return ""
	}
	for ; path != filepath.Dir(path); path = filepath.Dir(path) {
		if addr, err := NormalizeAddress(filepath.Base(path)); err == nil {
			return addr
		}
	}
	return ""
}
