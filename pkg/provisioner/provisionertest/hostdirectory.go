package provisionertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// hostOneSort: a device is of one sort, and a raw one is no file system.
func hostOneSort(t *testing.T, h HostUnderTest) {
	d, err := h.Host.Open(suiteContext(t), h.Prepare(t, "one"))
	wantNil(t, "open", err)
	var sorts []string
	for _, s := range []string{d.Path, d.Tag, d.Directory} {
		if s != "" {
			sorts = append(sorts, s)
		}
	}
	if len(sorts) > 1 {
		t.Fatalf("one volume is %q: a device has a path, a tag or a directory", sorts)
	}
	if d.Mode == provisioner.Block && d.Tag+d.Directory != "" {
		t.Fatalf("volumeMode Block was opened, as %q, which is no device", sorts)
	}
}

// hostDirectory: a directory that is handed over is the volume's alone, and keeps
// what is in it. A Host that hands over no directories has nothing to keep.
func hostDirectory(t *testing.T, h HostUnderTest) {
	ctx, spec := suiteContext(t), h.Prepare(t, "one")
	d, err := h.Host.Open(ctx, spec)
	wantNil(t, "open", err)
	if d.Directory == "" {
		return
	}
	wantDirectory(t, d)
	file := filepath.Join(d.Directory, "file")
	wantNil(t, "write a file", os.WriteFile(file, []byte("kept"), 0o600))
	other, err := h.Host.Open(ctx, h.Prepare(t, "two"))
	wantNil(t, "open another", err)
	wantDirectory(t, other)
	if within(other.Directory, d.Directory) || within(d.Directory, other.Directory) {
		t.Fatalf("two volumes have the directories %s and %s, which share files", d.Directory, other.Directory)
	}
	if _, err := os.Lstat(filepath.Join(other.Directory, "file")); err == nil {
		t.Fatal("a file of one volume is in another")
	}
	again, err := h.Host.Open(ctx, spec)
	wantNil(t, "open again", err)
	wantKept(t, "an open that was repeated", again)
	wantNil(t, "close", h.Host.Close(ctx, spec.VolumeID, d.Name))
	again, err = h.Host.Open(ctx, spec)
	wantNil(t, "open after close", err)
	wantKept(t, "a close", again)
	raw := spec
	raw.Mode = provisioner.Block
	if d, err := h.Host.Open(ctx, raw); err == nil && d.Directory != "" {
		t.Fatalf("volumeMode Block was opened, and is directory %s", d.Directory)
	}
}

func wantDirectory(t *testing.T, d provisioner.Device) {
	t.Helper()
	if d.Mode != provisioner.Filesystem || !filepath.IsAbs(d.Directory) || filepath.Clean(d.Directory) != d.Directory {
		t.Fatalf("got device %+v, want a file system at a plain absolute path", d)
	}
	fi, err := os.Lstat(d.Directory)
	wantNil(t, "look at the directory", err)
	if !fi.IsDir() {
		t.Fatalf("%s is no directory: %s", d.Directory, fi.Mode())
	}
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func wantKept(t *testing.T, after string, d provisioner.Device) {
	t.Helper()
	if got, err := os.ReadFile(filepath.Join(d.Directory, "file")); err != nil || string(got) != "kept" {
		t.Fatalf("after %s the volume's file holds %q, %v", after, got, err)
	}
}

// hostRestart: a process that begins anew finds what is open, and what is closed
// stays closed. A Host whose devices end with its process has nothing to find.
func hostRestart(t *testing.T, h HostUnderTest) {
	if h.Restart == nil {
		return
	}
	ctx, kept, closed := suiteContext(t), h.Prepare(t, "one"), h.Prepare(t, "two")
	want, err := h.Host.Open(ctx, kept)
	wantNil(t, "open", err)
	gone, err := h.Host.Open(ctx, closed)
	wantNil(t, "open another", err)
	wantNil(t, "close it", h.Host.Close(ctx, closed.VolumeID, gone.Name))
	if want.Directory != "" {
		wantNil(t, "write a file", os.WriteFile(filepath.Join(want.Directory, "file"), []byte("kept"), 0o600))
	}
	host := h.Restart(t)
	found, err := host.Lookup(ctx, kept.VolumeID)
	wantNil(t, "lookup after a restart", err)
	listed, err := host.List(ctx)
	wantNil(t, "list after a restart", err)
	if diff := cmp.Diff([]provisioner.Device{want}, listed); diff != "" {
		t.Fatalf("a restart changed what is open (-want +got):\n%s", diff)
	}
	again, err := host.Open(ctx, kept)
	wantNil(t, "open after a restart", err)
	for what, got := range map[string]provisioner.Device{"open": again, "lookup": found} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s after a restart differs (-want +got):\n%s", what, diff)
		}
	}
	if want.Directory != "" {
		wantKept(t, "a restart", again)
	}
	wantNil(t, "close after a restart", host.Close(ctx, kept.VolumeID, want.Name))
	_, err = h.Restart(t).Lookup(ctx, kept.VolumeID)
	wantError(t, "lookup after close and a restart", err, provisioner.ErrNotFound)
}
