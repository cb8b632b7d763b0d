package fusepath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// node is a file or directory of a directory that is shared. It is known by a
// descriptor, as virtiofsd has it, and not by its path: so it stays what it is
// when this host or another renames or removes it.
//
// The descriptor is closed once nothing refers to the node any more, or all are:
// fs.OnForget would be too early, since go-fuse can take up a node that it has
// just forgotten.
type node struct {
	fs.Inode
	fd   int
	open *descriptors
}

var (
	_ fs.NodeLookuper       = (*node)(nil)
	_ fs.NodeGetattrer      = (*node)(nil)
	_ fs.NodeSetattrer      = (*node)(nil)
	_ fs.NodeStatfser       = (*node)(nil)
	_ fs.NodeOpener         = (*node)(nil)
	_ fs.NodeOpendirHandler = (*node)(nil)
	_ fs.NodeReadlinker     = (*node)(nil)
	_ fs.NodeGetxattrer     = (*node)(nil)
	_ fs.NodeSetxattrer     = (*node)(nil)
	_ fs.NodeListxattrer    = (*node)(nil)
	_ fs.NodeRemovexattrer  = (*node)(nil)
)

// openRoot opens the directory to be shared, and returns its attributes too.
func openRoot(dir string, open *descriptors) (*node, fs.StableAttr, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fs.StableAttr{}, fmt.Errorf("open %s: %w", dir, err)
	}
	n := newNode(fd, open)
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return nil, fs.StableAttr{}, fmt.Errorf("read the attributes of %s: %w", dir, err)
	}
	return n, stable(&st), nil
}

// newNode takes the descriptor over.
func newNode(fd int, open *descriptors) *node {
	n := &node{fd: fd, open: open}
	open.add(fd)
	runtime.AddCleanup(n, open.close, fd)
	return n
}

// stable is what a file is known by. As long as it has a node its inode has a
// descriptor, so the number does not come to mean another file.
func stable(st *syscall.Stat_t) fs.StableAttr { return fs.StableAttr{Mode: st.Mode, Ino: st.Ino} }

// itself is a path to the open file behind a descriptor, whatever its name is now.
func itself(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// child is the inode of the file behind the descriptor, which it takes over. The
// file has the name in n, or none if that is "".
func (n *node) child(ctx context.Context, name string, fd int, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, errnoOf(err)
	}
	out.FromStat(&st)
	if known := n.GetChild(name); known != nil && known.StableAttr().Ino == st.Ino {
		_ = unix.Close(fd)
		return known, 0
	}
	return n.NewInode(ctx, newNode(fd, n.open), stable(&st)), 0
}

// at opens a name in n for what needs no right to the file itself.
func (n *node) at(name string) (int, error) {
	return unix.Openat(n.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// Lookup implements fs.NodeLookuper.
func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	fd, err := n.at(name)
	if err != nil {
		return nil, errnoOf(err)
	}
	return n.child(ctx, name, fd, out)
}

// Getattr implements fs.NodeGetattrer.
func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	var st syscall.Stat_t
	if err := syscall.Fstat(n.fd, &st); err != nil {
		return errnoOf(err)
	}
	out.FromStat(&st)
	return 0
}

// Setattr implements fs.NodeSetattrer. The owner comes before the mode and the
// size before the times, which they would change.
func (n *node) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if err := n.setOwner(in); err != nil {
		return errnoOf(err)
	}
	if mode, ok := in.GetMode(); ok {
		if err := unix.Chmod(itself(n.fd), mode); err != nil {
			return errnoOf(err)
		}
	}
	if size, ok := in.GetSize(); ok {
		if err := unix.Truncate(itself(n.fd), int64(size)); err != nil {
			return errnoOf(err)
		}
	}
	if err := n.setTimes(in); err != nil {
		return errnoOf(err)
	}
	return n.Getattr(ctx, f, out)
}

func (n *node) setOwner(in *fuse.SetAttrIn) error {
	uid, toUID := in.GetUID()
	gid, toGID := in.GetGID()
	if !toUID && !toGID {
		return nil
	}
	// What is not asked for is -1 here, which changes nothing.
	return unix.Fchownat(n.fd, "", int(int32(uid)), int(int32(gid)), unix.AT_EMPTY_PATH)
}

func (n *node) setTimes(in *fuse.SetAttrIn) error {
	access, toAccess := in.GetATime()
	change, toChange := in.GetMTime()
	if !toAccess && !toChange {
		return nil
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	var err1, err2 error
	if toAccess {
		times[0], err1 = unix.TimeToTimespec(access)
	}
	if toChange {
		times[1], err2 = unix.TimeToTimespec(change)
	}
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, itself(n.fd), times, 0)
}

// Statfs implements fs.NodeStatfser.
func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	var st syscall.Statfs_t
	if err := syscall.Fstatfs(n.fd, &st); err != nil {
		return errnoOf(err)
	}
	out.FromStatfsT(&st)
	return 0
}

// notPassed are flags of an open(2) that the host's kernel has dealt with.
const notPassed = unix.O_APPEND | unix.O_NOFOLLOW | unix.O_CREAT | unix.O_EXCL | fuse.FMODE_EXEC

// Open implements fs.NodeOpener.
func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	fd, err := unix.Open(itself(n.fd), int(flags)&^notPassed|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, errnoOf(err)
	}
	return loopback(fd), 0, 0
}

func loopback(fd int) fs.FileHandle { return fs.NewLoopbackFileFromOS(os.NewFile(uintptr(fd), "")) }

// OpendirHandle implements fs.NodeOpendirHandler.
func (n *node) OpendirHandle(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	entries, errno := fs.NewLoopbackDirStream(itself(n.fd))
	if errno != 0 {
		return nil, 0, errno
	}
	return entries, 0, 0
}

// Readlink implements fs.NodeReadlinker.
func (n *node) Readlink(context.Context) ([]byte, syscall.Errno) {
	target := make([]byte, unix.PathMax)
	size, err := unix.Readlinkat(n.fd, "", target)
	if err != nil {
		return nil, errnoOf(err)
	}
	return target[:size], 0
}

// Getxattr implements fs.NodeGetxattrer.
func (n *node) Getxattr(_ context.Context, name string, dest []byte) (uint32, syscall.Errno) {
	return sized(unix.Getxattr(itself(n.fd), name, dest))
}

// Listxattr implements fs.NodeListxattrer.
func (n *node) Listxattr(_ context.Context, dest []byte) (uint32, syscall.Errno) {
	return sized(unix.Listxattr(itself(n.fd), dest))
}

// Setxattr implements fs.NodeSetxattrer.
func (n *node) Setxattr(_ context.Context, name string, data []byte, flags uint32) syscall.Errno {
	return fs.ToErrno(unix.Setxattr(itself(n.fd), name, data, int(flags)))
}

// Removexattr implements fs.NodeRemovexattrer.
func (n *node) Removexattr(_ context.Context, name string) syscall.Errno {
	return fs.ToErrno(unix.Removexattr(itself(n.fd), name))
}

func sized(size int, err error) (uint32, syscall.Errno) { return uint32(max(size, 0)), fs.ToErrno(err) }
