package fusepath

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// gated is a file system behind a gate: every request that reads or changes
// something passes it. Those that only give things back do not.
type gated struct {
	fuse.RawFileSystem
	gate *gate
}

// through runs act behind the gate; EIO once that is fenced.
func (g *gated) through(act func() fuse.Status) fuse.Status {
	if errno := g.gate.enter(); errno != 0 {
		return fuse.Status(errno)
	}
	defer g.gate.leave()
	return act()
}

// plain takes from an opened file what would let the kernel go past the gate to
// the file behind.
func plain(out *fuse.OpenOut) {
	out.OpenFlags &^= fuse.FOPEN_PASSTHROUGH
	out.BackingID = 0
}

// Read implements fuse.RawFileSystem. The bytes are read within the gate.
func (g *gated) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (res fuse.ReadResult, code fuse.Status) {
	code = g.through(func() fuse.Status {
		inner, code := g.RawFileSystem.Read(cancel, in, buf)
		if !code.Ok() {
			return code
		}
		defer inner.Done()
		data, code := inner.Bytes(buf)
		res = fuse.ReadResultData(data)
		return code
	})
	return res, code
}

// Readlink implements fuse.RawFileSystem.
func (g *gated) Readlink(cancel <-chan struct{}, in *fuse.InHeader) (out []byte, code fuse.Status) {
	code = g.through(func() (code fuse.Status) {
		out, code = g.RawFileSystem.Readlink(cancel, in)
		return code
	})
	return out, code
}

// Open implements fuse.RawFileSystem.
func (g *gated) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	defer plain(out)
	return g.through(func() fuse.Status { return g.RawFileSystem.Open(cancel, in, out) })
}

// Create implements fuse.RawFileSystem.
func (g *gated) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	defer plain(&out.OpenOut)
	return g.through(func() fuse.Status { return g.RawFileSystem.Create(cancel, in, name, out) })
}

// Tmpfile implements fuse.RawFileSystem.
func (g *gated) Tmpfile(cancel <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	defer plain(&out.OpenOut)
	return g.through(func() fuse.Status { return g.RawFileSystem.Tmpfile(cancel, in, out) })
}

// GetLk, SetLk and SetLkw are left to the kernel: one that waits within the gate
// would hold up a fence.
func (g *gated) GetLk(<-chan struct{}, *fuse.LkIn, *fuse.LkOut) fuse.Status { return fuse.ENOSYS }

// SetLk implements fuse.RawFileSystem.
func (g *gated) SetLk(<-chan struct{}, *fuse.LkIn) fuse.Status { return fuse.ENOSYS }

// SetLkw implements fuse.RawFileSystem.
func (g *gated) SetLkw(<-chan struct{}, *fuse.LkIn) fuse.Status { return fuse.ENOSYS }

// Ioctl implements fuse.RawFileSystem: none is passed on.
func (g *gated) Ioctl(<-chan struct{}, *fuse.IoctlIn, []byte, *fuse.IoctlOut, []byte) fuse.Status {
	return fuse.Status(syscall.ENOTTY)
}

// Lookup implements fuse.RawFileSystem.
func (g *gated) Lookup(cancel <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.Lookup(cancel, header, name, out) })
}

// GetAttr implements fuse.RawFileSystem.
func (g *gated) GetAttr(cancel <-chan struct{}, input *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.GetAttr(cancel, input, out) })
}

// SetAttr implements fuse.RawFileSystem.
func (g *gated) SetAttr(cancel <-chan struct{}, input *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.SetAttr(cancel, input, out) })
}

// Mknod implements fuse.RawFileSystem.
func (g *gated) Mknod(cancel <-chan struct{}, input *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.Mknod(cancel, input, name, out) })
}

// Mkdir implements fuse.RawFileSystem.
func (g *gated) Mkdir(cancel <-chan struct{}, input *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.Mkdir(cancel, input, name, out) })
}

// Unlink implements fuse.RawFileSystem.
func (g *gated) Unlink(cancel <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.Unlink(cancel, header, name) })
}

// Rmdir implements fuse.RawFileSystem.
func (g *gated) Rmdir(cancel <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.Rmdir(cancel, header, name) })
}

// Rename implements fuse.RawFileSystem.
func (g *gated) Rename(cancel <-chan struct{}, input *fuse.RenameIn, oldName string, newName string) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.Rename(cancel, input, oldName, newName) })
}

// Link implements fuse.RawFileSystem.
func (g *gated) Link(cancel <-chan struct{}, input *fuse.LinkIn, filename string, out *fuse.EntryOut) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.Link(cancel, input, filename, out) })
}

// Symlink implements fuse.RawFileSystem.
func (g *gated) Symlink(cancel <-chan struct{}, header *fuse.InHeader, pointedTo string, linkName string, out *fuse.EntryOut) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.Symlink(cancel, header, pointedTo, linkName, out) })
}

// Access implements fuse.RawFileSystem.
func (g *gated) Access(cancel <-chan struct{}, input *fuse.AccessIn) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.Access(cancel, input) })
}

// GetXAttr implements fuse.RawFileSystem.
func (g *gated) GetXAttr(cancel <-chan struct{}, header *fuse.InHeader, attr string, dest []byte) (n uint32, code fuse.Status) {
	code = g.through(func() (code fuse.Status) {
		n, code = g.RawFileSystem.GetXAttr(cancel, header, attr, dest)
		return code
	})
	return n, code
}

// ListXAttr implements fuse.RawFileSystem.
func (g *gated) ListXAttr(cancel <-chan struct{}, header *fuse.InHeader, dest []byte) (n uint32, code fuse.Status) {
	code = g.through(func() (code fuse.Status) {
		n, code = g.RawFileSystem.ListXAttr(cancel, header, dest)
		return code
	})
	return n, code
}

// SetXAttr implements fuse.RawFileSystem.
func (g *gated) SetXAttr(cancel <-chan struct{}, input *fuse.SetXAttrIn, attr string, data []byte) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.SetXAttr(cancel, input, attr, data) })
}

// RemoveXAttr implements fuse.RawFileSystem.
func (g *gated) RemoveXAttr(cancel <-chan struct{}, header *fuse.InHeader, attr string) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.RemoveXAttr(cancel, header, attr) })
}

// Lseek implements fuse.RawFileSystem.
func (g *gated) Lseek(cancel <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.Lseek(cancel, in, out) })
}

// Write implements fuse.RawFileSystem.
func (g *gated) Write(cancel <-chan struct{}, input *fuse.WriteIn, data []byte) (n uint32, code fuse.Status) {
	code = g.through(func() (code fuse.Status) {
		n, code = g.RawFileSystem.Write(cancel, input, data)
		return code
	})
	return n, code
}

// Writev implements fuse.RawFileSystem.
func (g *gated) Writev(cancel <-chan struct{}, input *fuse.WriteIn, data [][]byte) (n uint32, code fuse.Status) {
	code = g.through(func() (code fuse.Status) {
		n, code = g.RawFileSystem.Writev(cancel, input, data)
		return code
	})
	return n, code
}

// CopyFileRange implements fuse.RawFileSystem.
func (g *gated) CopyFileRange(cancel <-chan struct{}, input *fuse.CopyFileRangeIn) (n uint32, code fuse.Status) {
	code = g.through(func() (code fuse.Status) {
		n, code = g.RawFileSystem.CopyFileRange(cancel, input)
		return code
	})
	return n, code
}

// Flush implements fuse.RawFileSystem.
func (g *gated) Flush(cancel <-chan struct{}, input *fuse.FlushIn) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.Flush(cancel, input) })
}

// Fsync implements fuse.RawFileSystem.
func (g *gated) Fsync(cancel <-chan struct{}, input *fuse.FsyncIn) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.Fsync(cancel, input) })
}

// Fallocate implements fuse.RawFileSystem.
func (g *gated) Fallocate(cancel <-chan struct{}, input *fuse.FallocateIn) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.Fallocate(cancel, input) })
}

// OpenDir implements fuse.RawFileSystem.
func (g *gated) OpenDir(cancel <-chan struct{}, input *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.OpenDir(cancel, input, out) })
}

// ReadDir implements fuse.RawFileSystem.
func (g *gated) ReadDir(cancel <-chan struct{}, input *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.ReadDir(cancel, input, out) })
}

// ReadDirPlus implements fuse.RawFileSystem.
func (g *gated) ReadDirPlus(cancel <-chan struct{}, input *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.ReadDirPlus(cancel, input, out) })
}

// FsyncDir implements fuse.RawFileSystem.
func (g *gated) FsyncDir(cancel <-chan struct{}, input *fuse.FsyncIn) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.FsyncDir(cancel, input) })
}

// StatFs implements fuse.RawFileSystem.
func (g *gated) StatFs(cancel <-chan struct{}, input *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.StatFs(cancel, input, out) })
}

// Statx implements fuse.RawFileSystem.
func (g *gated) Statx(cancel <-chan struct{}, input *fuse.StatxIn, out *fuse.StatxOut) fuse.Status {
	return g.through(func() fuse.Status { return g.RawFileSystem.Statx(cancel, input, out) })
}
