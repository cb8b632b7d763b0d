package pavdir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func (b *bed) left() []string {
	b.t.Helper()
	all, err := os.ReadDir(b.path)
	b.must(err)
	var out []string
	for _, e := range all {
		out = append(out, e.Name())
	}
	return out
}

func (b *bed) clear(lazily bool) []string {
	b.t.Helper()
	detached, err := b.Clear(b.t.Context(), directory, lazily)
	b.must(err)
	return detached
}

func TestClear(t *testing.T) {
	b := newBed(t)
	outside := t.TempDir()
	kept := filepath.Join(outside, "kept")
	b.must(os.WriteFile(kept, nil, 0o600))
	b.must(os.Symlink(outside, filepath.Join(b.dir, "link")))
	b.must(os.MkdirAll(filepath.Join(b.dir, "a/b/c"), 0o700))
	b.must(os.Symlink(kept, filepath.Join(b.dir, "a/b/link")))
	b.must(unix.Mkfifo(filepath.Join(b.dir, "a/fifo"), 0o600))
	b.must(os.Mkdir(filepath.Join(b.dir, "1"), 0o700)) // a name that is given to what is moved
	b.write("1/f", "x")
	for n := range batch + 10 {
		b.write("a/"+strconv.Itoa(n), "")
	}
	b.must(os.Mkdir(b.Path("other"), 0o700))
	for range 2 {
		b.clear(false)
		if left := b.left(); len(left) != 1 || left[0] != "other" {
			t.Errorf("left: %v", left)
		}
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("what a link names is gone: %v", err)
	}
	if _, err := b.Clear(t.Context(), "..", false); !errors.Is(err, ErrName) {
		t.Errorf("a name that leads out: %v", err)
	}
	if _, err := NewRoot(filepath.Join(outside, "none")).Clear(t.Context(), "d", false); err != nil {
		t.Errorf("without a root: %v", err)
	}
}

// A pod can make directories that are deeper than a path can be long.
func TestClearDeep(t *testing.T) {
	b := newBed(t)
	at, err := os.Open(b.dir)
	b.must(err)
	for range 1200 {
		b.must(unix.Mkdirat(int(at.Fd()), "deep", 0o700))
		below, err := unix.Openat(int(at.Fd()), "deep", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		b.must(err)
		at.Close()
		at = os.NewFile(uintptr(below), "deep")
	}
	at.Close()
	b.clear(false)
	if left := b.left(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// What was cut off goes on, and is found by its name.
func TestClearIsCutOff(t *testing.T) {
	b := newBed(t)
	b.write("f", "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Clear(ctx, directory, false); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want that it was cut off", err)
	}
	b.must(os.Rename(b.dir, b.Path(".gone~"+directory+"~1"))) // the step that follows, and no other
	b.must(os.Mkdir(b.Path("new"), 0o700))
	b.must(os.Mkdir(b.Path("No.name"), 0o700))
	b.must(os.WriteFile(b.Path("file"), nil, 0o600))
	directories, removed, err := b.Entries()
	b.must(err)
	if strings.Join(directories, " ") != "new" || strings.Join(removed, " ") != directory {
		t.Errorf("directories %v, removed %v", directories, removed)
	}
	b.must(os.Mkdir(b.dir, 0o755)) // a pod of the same name
	_, err = b.Finish(t.Context(), directory, false)
	b.must(err)
	if left := b.left(); len(left) != 4 || left[3] != directory {
		t.Errorf("left: %v", left)
	}
	if directories, removed, err := NewRoot(b.Path("none")).Entries(); err != nil || directories != nil || removed != nil {
		t.Errorf("without a root: %v %v %v", directories, removed, err)
	}
}

// What is no directory is removed as it is.
func TestClearFile(t *testing.T) {
	b := newBed(t)
	b.must(os.Remove(b.dir))
	b.must(os.Symlink(t.TempDir(), b.dir))
	b.clear(false)
	if left := b.left(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
