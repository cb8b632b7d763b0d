package hostdev

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// deviceNumber is the number of the block device that fi describes; ok is
// false if it is none.
func deviceNumber(fi fs.FileInfo) (rdev uint64, ok bool) {
	st, isStat := fi.Sys().(*syscall.Stat_t)
	if !isStat || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, false
	}
	return st.Rdev, true
}

// DeviceNumber is the number of the block device at path, links followed.
func DeviceNumber(path string) (uint64, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("look at device %s: %w", path, err)
	}
	rdev, ok := deviceNumber(fi)
	if !ok {
		return 0, fmt.Errorf("%s is no block device", path)
	}
	return rdev, nil
}

// FilesystemDevice is the number of the device that the file system at path
// lies on.
func FilesystemDevice(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return 0, fmt.Errorf("look at %s: %w", path, err)
	}
	return st.Dev, nil
}

// aligned is the alignment in bytes that direct I/O wants of memory, offset and
// length; 4096 suits every logical block size that Linux knows.
const aligned = 4096

// Readable reads the first 4 KiB of the device past every cache, and so says
// whether it still answers. nil if it does.
func Readable(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) {
		// A plain file on a file system without direct I/O (tests).
		f, err = os.Open(path)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer f.Close()
	if _, err := f.ReadAt(alignedBuffer(aligned), 0); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// alignedBuffer returns n bytes of memory that direct I/O accepts.
func alignedBuffer(n int) []byte {
	b := make([]byte, n+aligned)
	skip := 0
	if r := int(uintptr(unsafe.Pointer(&b[0])) % aligned); r != 0 {
		skip = aligned - r
	}
	return b[skip : skip+n]
}

// openExclusive opens the device for us alone: on a block device O_EXCL fails
// with EBUSY while it is mounted, part of LVM, RAID or device mapper, or held
// by another mkfs (open(2)).
func openExclusive(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, 0, fmt.Errorf("open %s for us alone: it is mounted, or held by RAID, LVM or another mkfs: %w", path, ErrBusy)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open %s for writing: %w", path, err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("size of %s: %w", path, err), f.Close())
	}
	return f, size, nil
}
