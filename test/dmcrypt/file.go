package dmcrypt

import (
	"context"
	"fmt"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// fileName is that of the one file of a mounted volume.
const fileName = "plain"

// mount shows a volume as the one file of a directory.
func mount(directory string, v *volume) (*fuse.Server, error) {
	root := &fs.Inode{}
	server, err := fs.Mount(directory, root, &fs.Options{
		MountOptions: fuse.MountOptions{FsName: "dmcrypt", Name: "dmcrypt", DirectMountStrict: true},
		OnAdd: func(ctx context.Context) {
			root.AddChild(fileName, root.NewPersistentInode(ctx, &file{volume: v}, fs.StableAttr{}), false)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("mount what is decrypted on %s: %w", directory, err)
	}
	return server, nil
}

// file is a volume in plain text.
type file struct {
	fs.Inode
	volume *volume
}

var (
	_ fs.NodeGetattrer = (*file)(nil)
	_ fs.NodeSetattrer = (*file)(nil)
	_ fs.NodeOpener    = (*file)(nil)
	_ fs.NodeReader    = (*file)(nil)
	_ fs.NodeWriter    = (*file)(nil)
	_ fs.NodeFsyncer   = (*file)(nil)
)

// Getattr implements fs.NodeGetattrer.
func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size, out.Nlink = fuse.S_IFREG|0o600, uint64(f.volume.size), 1
	return 0
}

// Setattr implements fs.NodeSetattrer; it changes nothing, since the kernel sets times.
func (f *file) Setattr(ctx context.Context, h fs.FileHandle, _ *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	return f.Getattr(ctx, h, out)
}

// Open implements fs.NodeOpener. Direct I/O: the loop device above has a cache, and so has the device below.
func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

// Read implements fs.NodeReader.
func (f *file) Read(_ context.Context, _ fs.FileHandle, dest []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	n, err := f.volume.readAt(dest, at)
	if err != nil {
		return nil, syscall.EIO
	}
	return fuse.ReadResultData(dest[:n]), 0
}

// Write implements fs.NodeWriter.
func (f *file) Write(_ context.Context, _ fs.FileHandle, data []byte, at int64) (uint32, syscall.Errno) {
	if f.volume.writeAt(data, at) != nil {
		return 0, syscall.EIO
	}
	return uint32(len(data)), 0
}

// Fsync implements fs.NodeFsyncer.
func (f *file) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	if f.volume.sync() != nil {
		return syscall.EIO
	}
	return 0
}
