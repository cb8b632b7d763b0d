//go:build root

package fusepath_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/writelog"
)

// rights lets in who is named in it, by the token "t".
type rights struct {
	mu   sync.Mutex
	file string
	who  map[string]bool
}

func (r *rights) Grant(_, node string) (blocktarget.Grant, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.who[node] {
		return blocktarget.Grant{}, fmt.Errorf("%s has no right: %w", node, blocktarget.ErrDenied)
	}
	return blocktarget.Grant{File: r.file, TokenHash: blocktarget.HashToken("t")}, nil
}

func (r *rights) set(node string, may bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.who[node] = may
}

// storage is a target with one volume.
type storage struct {
	*blocktarget.Server
	*rights
	address string
}

func startStorage(t *testing.T, dir string) storage {
	t.Helper()
	s := storage{rights: &rights{file: backing(t, dir, 64<<20), who: map[string]bool{}}}
	s.Server = blocktarget.NewServer(blocktarget.Options{
		Grants: s.rights,
		Record: func(file string) (blocktarget.Recorder, error) {
			return writelog.Open(filepath.Join(dir, "medium"), file)
		},
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// open makes the bdev of the volume and shows it; exposing needs the right.
func (d dpu) open(t *testing.T, address string) string {
	t.Helper()
	if _, err := d.BdevMoorTargetCreate(t.Context(), snaprpc.TargetSpec{Name: "vol", Address: address, Export: "v@" + d.name + "#t"}); err != nil {
		t.Fatal(err)
	}
	return d.show(t)
}

func TestRevokeUnderAMountedFileSystem(t *testing.T) {
	dir := t.TempDir()
	s := startStorage(t, dir)
	s.set("dpu-1", true)
	one, two := start(t, dir, "dpu-1"), start(t, dir, "dpu-2")
	one.open(t, s.address)
	command(t, "mkfs.ext4", "-q", one.dev())
	mountExt4(t, one.dev(), filepath.Join(dir, "mnt1"))
	var acked atomic.Int64
	stopped := make(chan error, 1)
	go func() { stopped <- fsyncLoop(filepath.Join(dir, "mnt1", "log"), &acked) }()
	eventually(t, "50 acknowledged records", func() bool { return acked.Load() >= 50 })

	s.set("dpu-1", false) // the DPU is not asked
	if n := s.Revoke("v", "dpu-1"); n != 1 {
		t.Fatalf("%d sessions ended", n)
	}
	s.set("dpu-2", true)
	two.open(t, s.address)
	mountExt4(t, two.dev(), filepath.Join(dir, "mnt2"))
	seen, err := os.ReadFile(filepath.Join(dir, "mnt2", "log"))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err = <-stopped:
	case <-time.After(10 * time.Second):
		t.Fatal("the writer goes on 10 s after its right was taken back")
	}
	if !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.EROFS) {
		t.Errorf("the writer ended with %v, want EIO", err)
	}
	if got := int64(bytes.Count(seen, []byte("\n"))); got < acked.Load() {
		t.Errorf("the other host sees %d records of %d acknowledged", got, acked.Load())
	}
	checkWriteLog(t, dir, s.file)
}

// wire is a TCP proxy in which what comes from the client can be held up.
type wire struct {
	address string
	mu      sync.Mutex
	open    chan struct{} // closed while the wire is whole
	held    atomic.Int64
	copies  sync.WaitGroup
}

func startWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{address: l.Addr().String(), open: make(chan struct{})}
	close(w.open)
	t.Cleanup(func() {
		_ = l.Close()
		w.join()
		w.copies.Wait()
	})
	w.copies.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			w.copies.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
			w.copies.Go(func() { _, _ = io.Copy(held{out, w}, in); _ = out.Close() })
		}
	})
	return w
}

// held writes when the wire is whole.
type held struct {
	net.Conn
	wire *wire
}

func (h held) Write(p []byte) (int, error) {
	h.wire.mu.Lock()
	open := h.wire.open
	h.wire.mu.Unlock()
	h.wire.held.Add(1)
	<-open
	h.wire.held.Add(-1)
	return h.Conn.Write(p)
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = make(chan struct{})
}

func (w *wire) join() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.open:
	default:
		close(w.open)
	}
}

func code(err error) int {
	c, _ := snaprpc.Code(err)
	return c
}

// TestNoReceiptForAWriteInDoubt: a detach is not confirmed while a write of the
// host is on its way to a target that cannot be asked.
func TestNoReceiptForAWriteInDoubt(t *testing.T) {
	dir := t.TempDir()
	s := startStorage(t, dir)
	s.set("dpu-1", true)
	w := startWire(t, s.address)
	d := start(t, dir, "dpu-1")
	ctrl := d.open(t, w.address)
	fd, err := unix.Open(d.dev(), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	w.cut()
	wrote := make(chan error, 1)
	go func() { _, err := unix.Pwrite(fd, page, 0); wrote <- err }()
	eventually(t, "the write is on its way", func() bool { return w.held.Load() > 0 })
	// A detach ends the write and does not wait until that gives up by itself.
	soon, cancel := context.WithTimeout(t.Context(), blocktarget.DefaultIOTimeout*2/3)
	defer cancel()
	for range 2 {
		if err := d.NvmeControllerDetachNS(soon, ctrl, 1); code(err) != snaprpc.CodeUnreachable {
			t.Fatalf("detach with a write in doubt: %v", err)
		}
	}
	if err := <-wrote; !errors.Is(err, syscall.EIO) {
		t.Fatalf("a write over a cut link: %v, want EIO", err)
	}
	w.join()
	eventually(t, "a receipt once the target answers", func() bool {
		return d.NvmeControllerDetachNS(t.Context(), ctrl, 1) == nil
	})
	if _, err := unix.Pwrite(fd, page, 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("a write after the detach: %v", err)
	}
}
