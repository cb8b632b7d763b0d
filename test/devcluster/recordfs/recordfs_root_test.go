//go:build root

package recordfs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/reference/writelog"
	"github.com/moor-storage/moor/test/devcluster/recordfs"
)

// mounted is a recorded directory.
type mounted struct{ dir, source, logs string }

func mount(t *testing.T) mounted {
	t.Helper()
	base := t.TempDir()
	m := mounted{dir: filepath.Join(base, "shown"), source: filepath.Join(base, "source"), logs: filepath.Join(base, "logs")}
	for _, dir := range []string{m.dir, m.source} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	server, err := recordfs.Mount(m.dir, recordfs.Options{Source: m.source, LogDir: m.logs, Log: testr.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m mounted) recorded(t *testing.T, file string) []writelog.Write {
	t.Helper()
	writes, err := writelog.Read(writelog.Path(m.logs, file))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return writes
}

func TestEveryWriteIsRecorded(t *testing.T) {
	m := mount(t)
	f, err := os.Create(filepath.Join(m.dir, "vol.img"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(16 << 20); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{0, 8192, 5000} {
		if _, err := f.WriteAt([]byte("some bytes"), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 4096, 4096); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20); err != nil {
		t.Fatal(err)
	}
	want := []writelog.Write{
		{Seq: 1, Offset: 0, Length: 10}, {Seq: 2, Offset: 8192, Length: 10}, {Seq: 3, Offset: 5000, Length: 10}, {Seq: 4, Offset: 4096, Length: 4096},
	}
	if diff := cmp.Diff(want, m.recorded(t, "vol.img"), cmpopts.IgnoreFields(writelog.Write{}, "DPU", "Monotonic")); diff != "" {
		t.Error(diff)
	}
	below, err := os.ReadFile(filepath.Join(m.source, "vol.img"))
	if err != nil || string(below[8192:8202]) != "some bytes" {
		t.Errorf("the file beneath holds %q, %v", below[8192:8202], err)
	}
}

func TestALargeWriteIsRecordedWhole(t *testing.T) {
	m := mount(t)
	f, err := os.Create(filepath.Join(m.dir, "vol.img"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const at, size = 777, 5 << 20
	if _, err := f.WriteAt(make([]byte, size), at); err != nil {
		t.Fatal(err)
	}
	end := int64(at)
	for _, w := range m.recorded(t, "vol.img") {
		if w.Offset != end {
			t.Fatalf("a piece begins at %d, the one before it ends at %d", w.Offset, end)
		}
		end += w.Length
	}
	if end != at+size {
		t.Errorf("%d bytes are recorded, of %d", end-at, size)
	}
}

func TestACopyIsRecorded(t *testing.T) {
	m := mount(t)
	if err := os.WriteFile(filepath.Join(m.dir, "from.img"), make([]byte, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(filepath.Join(m.dir, "from.img"))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.Create(filepath.Join(m.dir, "to.img"))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if n, err := unix.CopyFileRange(int(from.Fd()), nil, int(to.Fd()), nil, 100_000, 0); n != 100_000 {
		t.Fatalf("%d bytes copied, %v", n, err)
	}
	length := int64(0)
	for _, w := range m.recorded(t, "to.img") {
		length += w.Length
	}
	if length != 100_000 {
		t.Errorf("%d bytes of the copy are recorded", length)
	}
}

func TestAFileIsRecordedUnderItsNameOfThen(t *testing.T) {
	m := mount(t)
	f, err := os.Create(filepath.Join(m.dir, "draft"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("one"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(f.Name(), filepath.Join(m.dir, "vol.img")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("two"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"draft", "vol.img"} {
		if writes := m.recorded(t, name); len(writes) != 1 {
			t.Errorf("%s has %d records, want 1: %v", name, len(writes), writes)
		}
	}
}

func TestDirectoriesAreNotRecorded(t *testing.T) {
	m := mount(t)
	if err := os.Mkdir(filepath.Join(m.dir, "log"), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(m.dir, "log", "vol.img"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 2 {
		if _, err := f.WriteString("line\n"); err != nil {
			t.Fatal(err)
		}
	}
	if writes := m.recorded(t, "vol.img"); len(writes) != 0 {
		t.Errorf("writes in a directory are recorded: %v", writes)
	}
	if text, err := os.ReadFile(filepath.Join(m.source, "log", "vol.img")); err != nil || string(text) != "line\nline\n" {
		t.Errorf("appended %q, %v", text, err)
	}
}

func TestAWriteThatCannotBeRecordedFails(t *testing.T) {
	m := mount(t)
	if err := os.Mkdir(writelog.Path(m.logs, "vol.img"), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(m.dir, "vol.img"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("x"); err == nil {
		t.Error("a write without a record is acknowledged")
	}
}
