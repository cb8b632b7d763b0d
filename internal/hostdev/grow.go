package hostdev

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Size is the size in bytes of the block device, or file, at path.
func Size(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", path, err)
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, fmt.Errorf("size of %s: %w", path, err)
	}
	return size, nil
}

// ErrPrivilege means that the kernel wants a privilege that this process does not have.
var ErrPrivilege = errors.New("a privilege is missing")

// Grow makes the file system on the device at path as large as the device
// allows, as Ensure would have made it. mounted is where it is mounted; empty
// if it is not, and then xfs, which grows in use only, is left as it is. What is
// large enough is left alone. It reports whether it changed anything.
// ErrPrivilege if the kernel refuses to grow it in use: ext4 wants
// CAP_SYS_RESOURCE then, and grows without it when it is not mounted.
func (f *Formatter) Grow(ctx context.Context, path, fsType, mounted string) (grown bool, err error) {
	have, blockSize, err := filesystemSize(path, fsType)
	if err != nil {
		return false, err
	}
	size, err := Size(path)
	if err != nil {
		return false, err
	}
	want := (size - tailBytes) / blockSize
	if want <= have {
		return false, nil
	}
	switch {
	case fsType == "xfs" && mounted == "":
		return false, nil
	case fsType == "xfs":
		_, err = f.Runner.Run(ctx, "xfs_growfs", "-D", strconv.FormatInt(want, 10), mounted)
	default:
		err = f.growExt4(ctx, path, want*blockSize, mounted)
	}
	if err != nil {
		return false, fmt.Errorf("grow %s on %s from %d to %d blocks of %d bytes: %w", fsType, path, have, want, blockSize, err)
	}
	return true, nil
}

// growExt4 grows ext4. resize2fs wants a file system that is not mounted to have
// been checked since.
func (f *Formatter) growExt4(ctx context.Context, path string, bytes int64, mounted string) error {
	if mounted == "" {
		_, err := f.Runner.Run(ctx, "e2fsck", "-f", "-p", path)
		var exit *ExitError
		if err != nil && (!errors.As(err, &exit) || exit.Code&(fsckUncorrected|fsckNotRun) != 0) {
			return err
		}
	} else if missing, err := lacksResource(); err != nil || missing {
		return errors.Join(err, fmt.Errorf("ext4 grows in use with CAP_SYS_RESOURCE only; it grows without when it is staged next: %w", ErrPrivilege))
	}
	_, err := f.Runner.Run(ctx, "resize2fs", path, kib(bytes))
	return err
}

// lacksResource reports whether this process has not CAP_SYS_RESOURCE, without
// which the kernel refuses EXT4_IOC_RESIZE_FS (fs/ext4/ioctl.c).
func lacksResource() (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("read this process's capabilities: %w", err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0, nil
}

// Where the superblocks are, in bytes: Documentation/filesystems/ext4/super.rst
// and fs/xfs/libxfs/xfs_format.h.
const (
	ext4Super, ext4Magic = 1024, 0xEF53
	xfsMagic             = "XFSB"
)

// filesystemSize reads the size of the file system on the device at path, in
// its blocks, and the size of those in bytes.
func filesystemSize(path, fsType string) (blocks, blockSize int64, err error) {
	d, err := os.Open(path)
	if err != nil {
		return 0, 0, fmt.Errorf("open %s: %w", path, err)
	}
	defer d.Close()
	b := make([]byte, 4096)
	if _, err := d.ReadAt(b, 0); err != nil {
		return 0, 0, fmt.Errorf("read the superblock of %s: %w", path, err)
	}
	return parseSuper(b, fsType)
}

// parseSuper reads sizes in the first 4096 bytes of a device.
func parseSuper(b []byte, fsType string) (blocks, blockSize int64, err error) {
	bad := fmt.Errorf("the device shows no %s: %w", fsType, ErrForeign)
	switch fsType {
	case "xfs":
		if string(b[:4]) != xfsMagic {
			return 0, 0, bad
		}
		blocks, blockSize = int64(binary.BigEndian.Uint64(b[8:])), int64(binary.BigEndian.Uint32(b[4:]))
	case "ext4":
		s := b[ext4Super:]
		if binary.LittleEndian.Uint16(s[0x38:]) != ext4Magic {
			return 0, 0, bad
		}
		blocks = int64(binary.LittleEndian.Uint32(s[0x4:])) | int64(binary.LittleEndian.Uint32(s[0x150:]))<<32
		if shift := binary.LittleEndian.Uint32(s[0x18:]); shift <= 6 {
			blockSize = 1024 << shift
		}
	}
	if blocks <= 0 || blockSize < 512 || blockSize > 1<<16 {
		return 0, 0, bad
	}
	return blocks, blockSize, nil
}
