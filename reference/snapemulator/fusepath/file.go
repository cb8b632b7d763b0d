package fusepath

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/moor-storage/moor/reference/snapemulator/datapath"
)

// file is a namespace as a file. It outlives its name: a loop device that
// is held open keeps it, and is answered EIO.
type file struct {
	fs.Inode
	target datapath.Target
	gate   *gate
	size   atomic.Int64
}

var (
	_ fs.NodeGetattrer = (*file)(nil)
	_ fs.NodeSetattrer = (*file)(nil)
	_ fs.NodeOpener    = (*file)(nil)
	_ fs.NodeReader    = (*file)(nil)
	_ fs.NodeWriter    = (*file)(nil)
	_ fs.NodeFsyncer   = (*file)(nil)
	_ fs.NodeAllocater = (*file)(nil)
)

func (f *file) attr(out *fuse.Attr) {
	out.Mode = fuse.S_IFREG | 0o600
	out.Size = uint64(f.size.Load())
	out.Blocks = out.Size / 512
	out.Blksize = 4096
	out.Nlink = 1
}

// Getattr implements fs.NodeGetattrer; the size stays right after the fence.
func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.attr(&out.Attr)
	return 0
}

// Setattr changes nothing: the kernel sets times, and a size must not change.
func (f *file) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok && size != uint64(f.size.Load()) {
		return syscall.EPERM
	}
	f.attr(&out.Attr)
	return 0
}

// Open implements fs.NodeOpener. Direct I/O keeps the page cache out: what is
// fenced can be neither read from nor written into a cache.
func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

// Read implements fs.NodeReader.
func (f *file) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if errno := f.gate.enter(); errno != 0 {
		return nil, errno
	}
	defer f.gate.leave()
	n, err := f.target.Backing.ReadAt(dest, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errnoOf(err)
	}
	return fuse.ReadResultData(dest[:n]), 0
}

// Write implements fs.NodeWriter. Beyond the end nothing is written: the file
// behind must not grow.
func (f *file) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	if errno := f.writable(off, int64(len(data))); errno != 0 {
		return 0, errno
	}
	if errno := f.gate.enter(); errno != 0 {
		return 0, errno
	}
	defer f.gate.leave()
	n, err := f.target.Backing.WriteAt(data, off)
	if err != nil {
		return 0, errnoOf(err)
	}
	return uint32(n), 0
}

// Fsync implements fs.NodeFsyncer.
func (f *file) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	if errno := f.gate.enter(); errno != 0 {
		return errno
	}
	defer f.gate.leave()
	if err := f.target.Backing.Sync(); err != nil {
		return errnoOf(err)
	}
	return 0
}

// Allocate serves discard and write-zeroes of the loop device.
func (f *file) Allocate(_ context.Context, _ fs.FileHandle, off, size uint64, mode uint32) syscall.Errno {
	if errno := f.writable(int64(off), int64(size)); errno != 0 {
		return errno
	}
	if errno := f.gate.enter(); errno != 0 {
		return errno
	}
	defer f.gate.leave()
	if err := f.target.Backing.Punch(mode, int64(off), int64(size)); err != nil {
		return errnoOf(err)
	}
	return 0
}

func (f *file) writable(off, length int64) syscall.Errno {
	switch {
	case f.target.ReadOnly:
		return syscall.EROFS
	case off < 0 || length < 0 || off > f.size.Load()-length:
		return syscall.ENOSPC
	}
	return 0
}

// errnoOf finds the errno in a wrapped error; fs.ToErrno does not look there.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}
