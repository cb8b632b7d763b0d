//go:build root

package watchdog

import (
	"context"
	"encoding/binary"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// deviceFile answers a watchdog's calls, as the kernel's does, and writes them
// down. It rounds its timeout up to ten seconds.
type deviceFile struct {
	fs.Inode

	mu    sync.Mutex
	calls []string
}

func (f *deviceFile) note(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
}

func (f *deviceFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f.note("open")
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (f *deviceFile) Write(_ context.Context, _ fs.FileHandle, data []byte, _ int64) (uint32, syscall.Errno) {
	f.note("write " + string(data))
	return uint32(len(data)), 0
}

func (f *deviceFile) Ioctl(_ context.Context, _ fs.FileHandle, cmd uint32, _ uint64, input, output []byte) (int32, syscall.Errno) {
	switch cmd {
	case unix.WDIOC_SETTIMEOUT:
		f.note("settimeout " + time.Duration(int64(binary.NativeEndian.Uint32(input))*int64(time.Second)).String())
		binary.NativeEndian.PutUint32(output, 20)
	case unix.WDIOC_GETTIMEOUT:
		f.note("gettimeout")
		binary.NativeEndian.PutUint32(output, 20)
	case unix.WDIOC_KEEPALIVE:
		f.note("keepalive")
	default:
		return 0, syscall.ENOTTY
	}
	return 0, 0
}

// TestDevice makes the calls of Linux's watchdog interface, through the kernel, on
// a file that answers them.
func TestDevice(t *testing.T) {
	dir, file := t.TempDir(), &deviceFile{}
	root := &fs.Inode{}
	server, err := fs.Mount(dir, root, &fs.Options{OnAdd: func(ctx context.Context) {
		root.AddChild("watchdog", root.NewPersistentInode(ctx, file, fs.StableAttr{Mode: fuse.S_IFREG}), false)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Error(err)
		}
	})
	d, err := Open(filepath.Join(dir, "watchdog"), 12500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if d.Timeout() != 20*time.Second {
		t.Errorf("timeout %s, which is not what the device said", d.Timeout())
	}
	if err := d.Feed(); err != nil {
		t.Error(err)
	}
	if err := d.Close(true); err != nil {
		t.Error(err)
	}
	file.mu.Lock()
	defer file.mu.Unlock()
	if want := []string{"open", "settimeout 13s", "gettimeout", "keepalive", "write V"}; !slices.Equal(file.calls, want) {
		t.Errorf("calls %q, want %q", file.calls, want)
	}
}
