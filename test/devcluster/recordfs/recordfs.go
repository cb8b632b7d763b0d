package recordfs

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/reference/writelog"
)

// maxWrite is the most bytes that the kernel hands over at once; a larger write
// comes in pieces.
const maxWrite = 1 << 20

// Options say what to record.
type Options struct {
	// Source is the directory that is shown, and where all data goes.
	Source string
	// LogDir gets one log for each file. It must not be in Source.
	LogDir string
	Log    logr.Logger
}

// Mount shows Source on target and returns once it is there. The file system
// lives until it is unmounted or this process ends.
func Mount(target string, o Options) (*fuse.Server, error) {
	if err := os.MkdirAll(o.LogDir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of the recorded writes: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(o.Source, &st); err != nil {
		return nil, fmt.Errorf("find the directory to record, %s: %w", o.Source, err)
	}
	j := &journal{dir: o.LogDir, log: o.Log, files: map[string]*writelog.Log{}}
	root := &fs.LoopbackRoot{Path: o.Source, Dev: st.Dev}
	top := &node{LoopbackNode: fs.LoopbackNode{RootData: root}, journal: j}
	root.RootNode = top
	server, err := fs.Mount(target, top, &fs.Options{MountOptions: fuse.MountOptions{
		FsName: "moor-recorder", Name: "recorder", AllowOther: true, DirectMountStrict: true, MaxWrite: maxWrite,
		Options: []string{"default_permissions"},
	}})
	if err != nil {
		return nil, fmt.Errorf("mount the recorder of %s on %s: %w", o.Source, target, err)
	}
	return server, nil
}

// journal has the logs of the files, by name.
type journal struct {
	dir string
	log logr.Logger

	mu    sync.Mutex
	files map[string]*writelog.Log
}

// note records a change that the file has taken. An error means a hole in the
// log, so the writer has to get it.
func (j *journal) note(ctx context.Context, name string, offset, length int64) syscall.Errno {
	file, err := j.file(name)
	if err == nil {
		err = file.Append(writer(ctx), offset, length)
	}
	if err != nil {
		j.log.Error(err, "record a write", "file", name, "offset", offset, "length", length)
		return syscall.EIO
	}
	return fs.OK
}

func (j *journal) file(name string) (*writelog.Log, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if l := j.files[name]; l != nil {
		return l, nil
	}
	l, err := writelog.Open(j.dir, name)
	if err == nil {
		j.files[name] = l
	}
	return l, err
}

// writer names the process that made the request.
func writer(ctx context.Context) string {
	if caller, ok := fuse.FromContext(ctx); ok {
		return fmt.Sprintf("pid-%d", caller.Pid)
	}
	return "unknown"
}

// node is a file or a directory.
type node struct {
	fs.LoopbackNode
	journal *journal
}

var (
	_ fs.NodeOpener         = (*node)(nil)
	_ fs.NodeCreater        = (*node)(nil)
	_ fs.NodeCopyFileRanger = (*node)(nil)
	_ fs.NodeWrapChilder    = (*node)(nil)
)

// WrapChild implements fs.NodeWrapChilder: what is in the file system is recorded too.
func (n *node) WrapChild(context.Context, fs.InodeEmbedder) fs.InodeEmbedder {
	return &node{LoopbackNode: fs.LoopbackNode{RootData: n.RootData}, journal: n.journal}
}

// name of the file if it is recorded: those directly in the root are.
func (n *node) name() (string, bool) {
	name := n.Path(n.Root())
	return name, name != "" && !strings.Contains(name, "/")
}

// Open implements fs.NodeOpener.
func (n *node) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, mode, errno := n.LoopbackNode.Open(ctx, flags)
	return n.handle(h), mode, errno
}

// Create implements fs.NodeCreater.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	inode, h, fuseFlags, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	if errno != fs.OK {
		return inode, h, fuseFlags, errno
	}
	if made, ok := inode.Operations().(*node); ok {
		h = made.handle(h)
	}
	return inode, h, fuseFlags, errno
}

// CopyFileRange implements fs.NodeCopyFileRanger. It is refused, so that the
// kernel copies by reads and writes, each of which is recorded. ENOSYS makes it
// do so without asking again.
func (n *node) CopyFileRange(context.Context, fs.FileHandle, uint64, *fs.Inode, fs.FileHandle, uint64, uint64, uint64) (uint32, syscall.Errno) {
	return 0, syscall.ENOSYS
}

func (n *node) handle(h fs.FileHandle) fs.FileHandle {
	if file, ok := h.(*fs.LoopbackFile); ok {
		return &handle{LoopbackFile: file, node: n}
	}
	return h
}

// handle is a file that is open. Every method of LoopbackFile that changes data,
// or lets the kernel do so by itself, is replaced.
type handle struct {
	*fs.LoopbackFile
	node *node
}

var (
	_ fs.FileWriter          = (*handle)(nil)
	_ fs.FileWritever        = (*handle)(nil)
	_ fs.FileAllocater       = (*handle)(nil)
	_ fs.FilePassthroughFder = (*handle)(nil)
)

// PassthroughFd implements fs.FilePassthroughFder: no request may pass by this
// process.
func (h *handle) PassthroughFd() (int, bool) { return 0, false }

// Write implements fs.FileWriter.
func (h *handle) Write(ctx context.Context, data []byte, offset int64) (uint32, syscall.Errno) {
	n, errno := h.LoopbackFile.Write(ctx, data, offset)
	return h.written(ctx, offset, n, errno)
}

// Writev implements fs.FileWritever.
func (h *handle) Writev(ctx context.Context, data [][]byte, offset int64) (uint32, syscall.Errno) {
	n, errno := h.LoopbackFile.Writev(ctx, data, offset)
	return h.written(ctx, offset, n, errno)
}

// written records n bytes that the file has taken.
func (h *handle) written(ctx context.Context, offset int64, n uint32, errno syscall.Errno) (uint32, syscall.Errno) {
	if name, recorded := h.node.name(); recorded && n > 0 {
		if failed := h.node.journal.note(ctx, name, offset, int64(n)); failed != fs.OK {
			return 0, failed
		}
	}
	return n, errno
}

// Allocate implements fs.FileAllocater: it makes holes and zeroes.
func (h *handle) Allocate(ctx context.Context, offset, size uint64, mode uint32) syscall.Errno {
	errno := h.LoopbackFile.Allocate(ctx, offset, size, mode)
	// What only reserves room changes no data.
	changes := mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_ZERO_RANGE) != 0
	if name, recorded := h.node.name(); recorded && changes && errno == fs.OK {
		return h.node.journal.note(ctx, name, int64(offset), int64(size))
	}
	return errno
}
