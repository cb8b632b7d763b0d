package fusepath

import (
	"context"
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

var (
	_ fs.NodeCreater   = (*node)(nil)
	_ fs.NodeMkdirer   = (*node)(nil)
	_ fs.NodeMknoder   = (*node)(nil)
	_ fs.NodeSymlinker = (*node)(nil)
	_ fs.NodeTmpfiler  = (*node)(nil)
	_ fs.NodeLinker    = (*node)(nil)
	_ fs.NodeRenamer   = (*node)(nil)
	_ fs.NodeUnlinker  = (*node)(nil)
	_ fs.NodeRmdirer   = (*node)(nil)
)

// born is the inode of a file that was just made in n for the caller of ctx. It
// takes the descriptor over, and gives the file its owner and its mode: what
// this process made has this process's.
func (n *node) born(ctx context.Context, name string, fd int, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if err := n.hand(ctx, fd, mode); err != nil {
		_ = unix.Close(fd)
		return nil, errnoOf(err)
	}
	return n.child(ctx, name, fd, out)
}

// hand gives a new file in n to the caller of ctx. In a directory with the bit
// setgid it has the directory's group from the start, and keeps it.
func (n *node) hand(ctx context.Context, fd int, mode uint32) error {
	var dir, st syscall.Stat_t
	if err := errors.Join(syscall.Fstat(n.fd, &dir), syscall.Fstat(fd, &st)); err != nil {
		return err
	}
	if caller, ok := fuse.FromContext(ctx); ok {
		gid := int(caller.Gid)
		if dir.Mode&unix.S_ISGID != 0 {
			gid = -1
		}
		if err := unix.Fchownat(fd, "", int(caller.Uid), gid, unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return nil
	case unix.S_IFDIR:
		mode |= st.Mode & unix.S_ISGID
	}
	// The umask of the caller is in the mode; that of this process is not asked for.
	return unix.Chmod(itself(fd), mode&0o7777)
}

// made is the inode of what was just made at a name in n; if that comes to
// nothing, undo removes it.
func (n *node) made(ctx context.Context, name string, mode uint32, undo int, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	fd, err := n.at(name)
	if err != nil {
		return nil, errnoOf(err)
	}
	inode, errno := n.born(ctx, name, fd, mode, out)
	if errno != 0 {
		_ = unix.Unlinkat(n.fd, name, undo)
	}
	return inode, errno
}

// Mkdir implements fs.NodeMkdirer.
func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if err := unix.Mkdirat(n.fd, name, mode); err != nil {
		return nil, errnoOf(err)
	}
	return n.made(ctx, name, mode, unix.AT_REMOVEDIR, out)
}

// Mknod implements fs.NodeMknoder.
func (n *node) Mknod(ctx context.Context, name string, mode, dev uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if err := unix.Mknodat(n.fd, name, mode, int(dev)); err != nil {
		return nil, errnoOf(err)
	}
	return n.made(ctx, name, mode, 0, out)
}

// Symlink implements fs.NodeSymlinker.
func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if err := unix.Symlinkat(target, n.fd, name); err != nil {
		return nil, errnoOf(err)
	}
	return n.made(ctx, name, 0, 0, out)
}

// Create implements fs.NodeCreater. Another host may have made the file since
// this one looked.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	how := int(flags)&^notPassed | unix.O_CREAT | unix.O_EXCL | unix.O_CLOEXEC
	fd, err := unix.Openat(n.fd, name, how, mode)
	if errors.Is(err, unix.EEXIST) && flags&unix.O_EXCL == 0 {
		return n.found(ctx, name, flags, out)
	}
	if err != nil {
		return nil, nil, 0, errnoOf(err)
	}
	inode, errno := n.opened(ctx, name, fd, mode, out)
	if errno != 0 {
		_ = unix.Unlinkat(n.fd, name, 0)
		return nil, nil, 0, errno
	}
	return inode, loopback(fd), 0, 0
}

// found opens a file that is there.
func (n *node) found(ctx context.Context, name string, flags uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	inode, errno := n.Lookup(ctx, name, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	f, _, errno := inode.Operations().(*node).Open(ctx, flags)
	return inode, f, 0, errno
}

// opened is the inode of a new file that is open for the host. It closes the
// descriptor only if it fails.
func (n *node) opened(ctx context.Context, name string, open int, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	fd, err := unix.Open(itself(open), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(open)
		return nil, errnoOf(err)
	}
	inode, errno := n.born(ctx, name, fd, mode, out)
	if errno != 0 {
		_ = unix.Close(open)
	}
	return inode, errno
}

// Tmpfile implements fs.NodeTmpfiler.
func (n *node) Tmpfile(ctx context.Context, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	fd, err := unix.Open(itself(n.fd), int(flags)&^(notPassed&^unix.O_EXCL)|unix.O_TMPFILE|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, nil, 0, errnoOf(err)
	}
	inode, errno := n.opened(ctx, "", fd, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	return inode, loopback(fd), 0, 0
}

// Link implements fs.NodeLinker.
func (n *node) Link(_ context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	old, ok := target.(*node)
	if !ok {
		return nil, syscall.EXDEV
	}
	if err := unix.Linkat(unix.AT_FDCWD, itself(old.fd), n.fd, name, unix.AT_SYMLINK_FOLLOW); err != nil {
		return nil, errnoOf(err)
	}
	return old.EmbeddedInode(), old.entry(out)
}

// entry is what the host is told of a file that it knows.
func (n *node) entry(out *fuse.EntryOut) syscall.Errno {
	var st syscall.Stat_t
	if err := syscall.Fstat(n.fd, &st); err != nil {
		return errnoOf(err)
	}
	out.FromStat(&st)
	return 0
}

// Rename implements fs.NodeRenamer.
func (n *node) Rename(_ context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	dir, ok := to.(*node)
	if !ok {
		return syscall.EXDEV
	}
	return fs.ToErrno(unix.Renameat2(n.fd, name, dir.fd, newName, uint(flags)))
}

// Unlink implements fs.NodeUnlinker.
func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	return fs.ToErrno(unix.Unlinkat(n.fd, name, 0))
}

// Rmdir implements fs.NodeRmdirer.
func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	return fs.ToErrno(unix.Unlinkat(n.fd, name, unix.AT_REMOVEDIR))
}
