//go:build root

package fusepath_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/fusepath"
	"github.com/moor-storage/moor/reference/writelog"
)

// dpu is a running emulator with a real data path, and a client of it.
type dpu struct {
	*snaprpc.Client
	name, root string
	vf         string
}

func (d dpu) dev() string { return filepath.Join(d.root, "dev", "nvme1n1") }

// start runs an emulator until the test ends. All share the medium log of dir.
func start(t *testing.T, dir, name string) dpu {
	t.Helper()
	root := filepath.Join(dir, name)
	path, err := fusepath.Open(name, filepath.Join(root, "fuse"), testr.New(t))
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(root, "snap.sock")
	e, err := snapemulator.New(snapemulator.Options{
		Name: name, Socket: socket, VFs: 4, SysfsRoot: filepath.Join(root, "sys"),
		DevRoot: filepath.Join(root, "dev"), MediumLogDir: filepath.Join(dir, "medium"), DataPath: path,
	})
	if err != nil {
		t.Fatal(err, path.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("emulator %s ended: %v", name, err)
		}
	})
	return dpu{Client: snaprpc.New(socket, 20*time.Second), name: name, root: root, vf: "26:00.2"}
}

// expose shows file as DPF's driver does.
func (d dpu) expose(t *testing.T, file string) string {
	t.Helper()
	if _, err := d.BdevAioCreate(t.Context(), snaprpc.AIOSpec{Name: "vol", Filename: file}); err != nil {
		t.Fatal(err)
	}
	return d.show(t)
}

// show shows the bdev "vol" through the first virtual function.
func (d dpu) show(t *testing.T) string {
	t.Helper()
	ctx, nqn := t.Context(), "nqn.2022-10.io.nvda.nvme:dpf-vol"
	if err := d.NvmeSubsystemCreate(ctx, nqn); err != nil {
		t.Fatal(err)
	}
	if err := d.NvmeNamespaceCreate(ctx, snaprpc.NamespaceSpec{NQN: nqn, NSID: 1, BdevName: "vol"}); err != nil {
		t.Fatal(err)
	}
	ctrl, err := d.NvmeControllerCreate(ctx, snaprpc.ControllerSpec{NQN: nqn, PCIBDF: d.vf, Suspended: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.NvmeControllerAttachNS(ctx, ctrl, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.dev()); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the device is there while the controller is suspended: %v", err)
	}
	if err := d.NvmeControllerResume(ctx, ctrl); err != nil {
		t.Fatal(err)
	}
	return ctrl
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func backing(t *testing.T, dir string, size int64) string {
	t.Helper()
	file := filepath.Join(dir, "vol.img")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	return file
}

// mountExt4 mounts dev until the test ends.
func mountExt4(t *testing.T, dev, at string) {
	t.Helper()
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(dev, at, "ext4", 0, ""); err != nil {
		t.Fatalf("mount %s on %s: %v", dev, at, err)
	}
	t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
}

// fsyncLoop appends records to a file and syncs each until that fails; acked
// counts the records that were acknowledged.
func fsyncLoop(path string, acked *atomic.Int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for i := int64(0); ; i++ {
		if _, err := fmt.Fprintf(f, "%09d\n", i); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		acked.Store(i + 1)
	}
}

// patience is what anything may take on a machine that does much else.
const patience = time.Minute

// eventually polls for cond to come true, and fails the test if it does not in time.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick, deadline := time.NewTicker(2*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within %s", what, patience)
		case <-tick.C:
		}
	}
}

func TestFenceUnderAWriter(t *testing.T) {
	dir := t.TempDir()
	file := backing(t, dir, 64<<20)
	one := start(t, dir, "dpu-1")
	two := start(t, dir, "dpu-2")
	ctrl := one.expose(t, file)
	command(t, "mkfs.ext4", "-q", one.dev())
	mountExt4(t, one.dev(), filepath.Join(dir, "mnt1"))
	var acked atomic.Int64
	stopped := make(chan error, 1)
	go func() { stopped <- fsyncLoop(filepath.Join(dir, "mnt1", "log"), &acked) }()
	eventually(t, "50 acknowledged records", func() bool { return acked.Load() >= 50 })

	began := time.Now()
	if err := one.NvmeControllerDetachNS(t.Context(), ctrl, 1); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	var err error
	select {
	case err = <-stopped:
	case <-time.After(patience):
		t.Fatalf("the writer goes on %s after the fence", patience)
	}
	if !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.EROFS) {
		t.Errorf("the writer ended with %v, want EIO", err)
	}
	t.Logf("detach answered after %v, writer stopped after %v, %d records", took, time.Since(began), acked.Load())
	if _, err := os.Lstat(one.dev()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the device file is still there: %v", err)
	}

	two.expose(t, file)
	mountExt4(t, two.dev(), filepath.Join(dir, "mnt2"))
	seen, err := os.ReadFile(filepath.Join(dir, "mnt2", "log"))
	if err != nil {
		t.Fatal(err)
	}
	if got := int64(bytes.Count(seen, []byte("\n"))); got < acked.Load() {
		t.Errorf("the other host sees %d records of %d acknowledged", got, acked.Load())
	}
	checkWriteLog(t, dir, file)
}

// checkWriteLog proves that no write of dpu-1 follows one of dpu-2.
func checkWriteLog(t *testing.T, dir, file string) {
	t.Helper()
	writes, err := writelog.Read(writelog.Path(filepath.Join(dir, "medium"), file))
	if err != nil {
		t.Fatal(err)
	}
	byDPU := map[string]int{}
	for _, w := range writes {
		byDPU[w.DPU]++
		if w.DPU == "dpu-1" && byDPU["dpu-2"] > 0 {
			t.Fatalf("write %d of dpu-1 was accepted after a write of dpu-2", w.Seq)
		}
	}
	if byDPU["dpu-1"] == 0 || byDPU["dpu-2"] == 0 {
		t.Errorf("writes recorded: %v, want some of both", byDPU)
	}
}

// TestFenceUnderDirtyCaches: eight writers fill the page cache of the host; the
// answer does not wait for the kernel to find out that none of it can be saved.
func TestFenceUnderDirtyCaches(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir, "dpu-1")
	ctrl := d.expose(t, backing(t, dir, 256<<20))
	command(t, "mkfs.ext4", "-q", d.dev())
	mnt := filepath.Join(dir, "mnt1")
	mountExt4(t, d.dev(), mnt)
	var written atomic.Int64
	ended := make(chan error, 8)
	for i := range 8 {
		go func() { ended <- fill(filepath.Join(mnt, fmt.Sprint("f", i)), 16, &written) }()
	}
	eventually(t, "32 MiB written", func() bool { return written.Load() >= 32<<20 })
	began := time.Now()
	if err := d.NvmeControllerDetachNS(t.Context(), ctrl, 1); err != nil {
		t.Fatal(err)
	}
	t.Logf("detach answered after %v", time.Since(began))
	before, err := writelog.Read(writelog.Path(filepath.Join(dir, "medium"), "vol.img"))
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if err := <-ended; err == nil {
			t.Error("a writer synced its file after the fence")
		}
	}
	after, err := writelog.Read(writelog.Path(filepath.Join(dir, "medium"), "vol.img"))
	if err != nil || len(after) != len(before) {
		t.Errorf("%d writes were accepted when detach answered, %d in the end (%v)", len(before), len(after), err)
	}
}

// fill rewrites a file of the given number of MiB until that fails.
func fill(path string, mebibytes int, written *atomic.Int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	chunk := bytes.Repeat([]byte("m"), 1<<20)
	for {
		for i := range mebibytes {
			if _, err := f.WriteAt(chunk, int64(i)<<20); err != nil {
				return err
			}
			written.Add(int64(len(chunk)))
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
}

func TestReattachWhileTheOldDeviceIsMounted(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir, "dpu-1")
	ctrl := d.expose(t, backing(t, dir, 32<<20))
	command(t, "mkfs.ext4", "-q", d.dev())
	mountExt4(t, d.dev(), filepath.Join(dir, "mnt1"))
	old, err := os.OpenFile(filepath.Join(dir, "mnt1", "f"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := d.NvmeControllerDetachNS(t.Context(), ctrl, 1); err != nil {
		t.Fatal(err)
	}
	if err := d.NvmeControllerAttachNS(t.Context(), ctrl, 1); err != nil {
		t.Fatal(err)
	}
	mountExt4(t, d.dev(), filepath.Join(dir, "mnt2"))
	if err := os.WriteFile(filepath.Join(dir, "mnt2", "new"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _ = old.WriteString("late") // the page cache may take it; Sync tells
	if err := old.Sync(); err == nil {
		t.Error("the old mount writes again after the namespace was attached anew")
	}
}

func TestPauseHoldsAndFenceFreesIO(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir, "dpu-1")
	ctrl := d.expose(t, backing(t, dir, 1<<20))
	if err := d.NvmeControllerSuspend(t.Context(), ctrl); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(d.dev(), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := unix.Pwrite(fd, page, 0); ended <- err }()
	select {
	case err := <-ended:
		t.Fatalf("a write ended with %v while the controller is suspended", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := d.NvmeControllerDestroy(t.Context(), ctrl, true); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("the waiting write ended with %v, want EIO", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the waiting write still waits after the fence")
	}
}

func TestDeviceSize(t *testing.T) {
	dir := t.TempDir()
	const size = 3<<20 + 512
	d := start(t, dir, "dpu-1")
	d.expose(t, backing(t, dir, size))
	f, err := os.Open(d.dev())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := f.Seek(0, 2); err != nil || got != size {
		t.Errorf("the device has %d bytes (%v), want %d", got, err, size)
	}
	ns := filepath.Join(d.root, "sys/bus/pci/drivers/nvme/0000:26:00.2/nvme/nvme1/nvme1n1")
	for name, want := range map[string]string{"size": fmt.Sprint(size / 512), "nsid": "1"} {
		if raw, err := os.ReadFile(filepath.Join(ns, name)); strings.TrimSpace(string(raw)) != want {
			t.Errorf("%s is %q (%v), want %s", name, raw, err, want)
		}
	}
}

func TestThroughput(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir, "dpu-1")
	d.expose(t, backing(t, dir, 256<<20))
	f, err := os.OpenFile(d.dev(), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	chunk := make([]byte, 1<<20)
	began := time.Now()
	for range 256 {
		if _, err := f.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%.0f MB/s", 268.4/time.Since(began).Seconds())
}
