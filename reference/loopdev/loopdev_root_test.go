//go:build root

package loopdev

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// image makes a file of a size, and a label for its device that no other run has.
func image(t *testing.T, bytes int64) (path, label string) {
	t.Helper()
	path, label = filepath.Join(t.TempDir(), "image"), fmt.Sprintf("moor-test.%d.%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(bytes), f.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := DetachAll(label); err != nil {
			t.Error(err)
		}
	})
	return path, label
}

func size(t *testing.T, d *Device) int64 {
	t.Helper()
	f, err := os.Open(d.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func count(t *testing.T, label string) int {
	t.Helper()
	all, err := All(label)
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func TestDeviceOfAFile(t *testing.T) {
	path, label := image(t, 1<<20)
	d, err := Attach(path, label, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := size(t, d); n != 1<<20 {
		t.Errorf("the device has %d bytes", n)
	}
	if err := os.Truncate(path, 2<<20); err != nil {
		t.Fatal(err)
	}
	all, err := All(label) // as another process finds it
	if err != nil || len(all) != 1 || all[0].Path != d.Path || all[0].Label() != label || all[0].Number() != d.Number() {
		t.Fatalf("found %+v, %v, want %+v", all, err, d)
	}
	if err := all[0].Refresh(); err != nil || size(t, d) != 2<<20 {
		t.Errorf("after a refresh it has %d bytes, %v", size(t, d), err)
	}
	for range 2 {
		if err := d.Detach(); err != nil {
			t.Error(err)
		}
	}
	if n := count(t, label); n != 0 {
		t.Errorf("%d devices left", n)
	}
	if err := d.Refresh(); err == nil {
		t.Error("a device that was given back has a size")
	}
}

func TestPassingDeviceGoesWithItsLastUser(t *testing.T) {
	path, label := image(t, 1<<20)
	d, err := Attach(path, label, Options{Passing: true})
	if err != nil {
		t.Fatal(err)
	}
	user, err := os.Open(d.Path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d.Release()
	}
	if n := count(t, label); n != 1 {
		t.Errorf("%d devices while one has a user", n)
	}
	if err := user.Close(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, label); n != 0 {
		t.Errorf("%d devices left after the last user", n)
	}
}

func TestReadOnlyDevice(t *testing.T) {
	path, label := image(t, 1<<20)
	d, err := Attach(path, label, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(d.Path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.Write(make([]byte, 512))
		err = errors.Join(err, f.Sync())
		_ = f.Close()
	}
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EROFS) {
		t.Errorf("write: %v, want it refused", err)
	}
}

func TestNoFileNoDevice(t *testing.T) {
	if d, err := Attach(filepath.Join(t.TempDir(), "none"), "moor-test.none", Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %+v, %v", d, err)
	}
}
