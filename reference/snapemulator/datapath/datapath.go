// Package datapath is what lies under an emulated function: the backings of bdevs,
// each write of which is recorded, and the devices that a host is shown.
package datapath

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Backing is the storage behind a bdev.
type Backing interface {
	io.ReaderAt
	io.WriterAt
	// Sync makes every finished write durable.
	Sync() error
	// Punch deallocates or zeroes a range, by fallocate(2)'s mode.
	Punch(mode uint32, offset, length int64) error
}

// Target is what a data path makes a device of.
type Target struct {
	// Name is unique among the targets of one emulator at a time.
	Name string
	// Size in bytes, a multiple of 512.
	Size     int64
	ReadOnly bool
	Backing  Backing
	// File is the file behind the bdev, or empty for one in memory.
	File string
	// Function is the VUID of the function that shows it, NSID its namespace there.
	Function string
	NSID     uint64
}

// DataPath makes devices that a host can read and write.
type DataPath interface {
	// Attach makes a device of t.
	Attach(ctx context.Context, t Target) (Device, error)
	// Close fences and removes every device and frees the path's resources.
	Close() error
}

// Device is one attached namespace as the host's kernel sees it.
type Device interface {
	// Node makes the device's file at path, replacing what is there.
	Node(path string) error
	// Number is the device's number as sysfs writes it, "7:3"; empty if it
	// is no block device.
	Number() string
	// Pause makes I/O wait, or go on.
	Pause(paused bool)
	// Resize gives the device another size in bytes; it never shrinks.
	Resize(bytes int64) error
	// Fence makes all further I/O fail with EIO and returns when the I/O in
	// flight has ended. It cannot be undone.
	Fence()
	// Detach gives the device back, after Fence. It does not wait for those
	// who have it open.
	Detach() error
}

// Keeper is a data path whose devices outlive the service that attached them: Close leaves
// them with the host, and so does a crash. The host's I/O waits then, for a time.
type Keeper interface {
	DataPath
	// Kept returns the devices that an earlier service has left.
	Kept() ([]Kept, error)
}

// Kept is a device without a service.
type Kept struct {
	Function string
	NSID     uint64
	Device   interface {
		Device
		// Adopt has the device's I/O served by the backing, that first which waits.
		Adopt(backing Backing) error
	}
}

// PlainPath shows a namespace as the file behind it. It needs no privileges
// and cannot fence: who has the file open can go on writing.
type PlainPath struct{}

type plainDevice struct{ target Target }

// Attach implements DataPath.
func (PlainPath) Attach(_ context.Context, t Target) (Device, error) {
	return &plainDevice{target: t}, nil
}

// Close implements DataPath.
func (PlainPath) Close() error { return nil }

func (d *plainDevice) Node(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("replace the device file %s: %w", path, err)
	}
	if d.target.File != "" {
		file, err := filepath.Abs(d.target.File)
		if err != nil {
			return fmt.Errorf("find the file behind %s: %w", d.target.Name, err)
		}
		return os.Symlink(file, path)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return os.Truncate(path, d.target.Size)
}

func (*plainDevice) Number() string     { return "" }
func (*plainDevice) Pause(bool)         {}
func (*plainDevice) Resize(int64) error { return nil } // it is the file
func (*plainDevice) Fence()             {}
func (*plainDevice) Detach() error      { return nil }

// FileBacking is a bdev over a file of the DPU, or over anonymous memory.
type FileBacking struct{ *os.File }

// Punch implements Backing.
func (f FileBacking) Punch(mode uint32, offset, length int64) error {
	return unix.Fallocate(int(f.Fd()), mode, offset, length)
}

// NullBacking reads zeroes and forgets writes.
type NullBacking struct{}

// ReadAt implements Backing.
func (NullBacking) ReadAt(p []byte, _ int64) (int, error) { clear(p); return len(p), nil }

// WriteAt implements Backing.
func (NullBacking) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// Sync implements Backing.
func (NullBacking) Sync() error { return nil }

// Punch implements Backing.
func (NullBacking) Punch(uint32, int64, int64) error { return nil }

// OpenBacking opens the file behind an AIO bdev and returns its size in bytes,
// which for a block device is the device's.
func OpenBacking(path string, readOnly bool) (FileBacking, int64, error) {
	flags := os.O_RDWR
	if readOnly {
		flags = os.O_RDONLY
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return FileBacking{}, 0, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		f.Close()
		return FileBacking{}, 0, fmt.Errorf("find the size of %s: %w", path, err)
	}
	return FileBacking{f}, size, nil
}

// MemoryBacking is a malloc bdev: anonymous memory of size bytes.
func MemoryBacking(name string, size int64) (FileBacking, error) {
	fd, err := unix.MemfdCreate("snapemu-"+name, unix.MFD_CLOEXEC)
	if err != nil {
		return FileBacking{}, fmt.Errorf("allocate memory for %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Truncate(size); err != nil {
		f.Close()
		return FileBacking{}, fmt.Errorf("allocate %d bytes for %s: %w", size, name, err)
	}
	return FileBacking{f}, nil
}
