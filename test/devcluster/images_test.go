package devcluster

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/test/devcluster/ociimage"
)

func TestLibraries(t *testing.T) {
	const list = "\tlinux-vdso.so.1 (0x00007f7d6d939000)\n" +
		"\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f7d6d72f000)\n" +
		"\t/lib64/ld-linux-x86-64.so.2 (0x00007f7d6d93b000)\n"
	want := []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}
	if got := libraries(list); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	if got := libraries("\tnot a dynamic executable\n"); len(got) != 0 {
		t.Errorf("found %v", got)
	}
}

// TestWithPrograms: the programs are files of their own, once, with what they need.
func TestWithPrograms(t *testing.T) {
	programs := map[string]string{"/bin/dd": "dd", "/bin/sh": "dash"}
	got, err := WithPrograms(t.Context(), []ociimage.File{{Path: "/bin/busybox"}, {Path: "/bin/dd", Link: "/bin/busybox"}, {Path: "/bin/ls", Link: "/bin/busybox"}}, programs)
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for _, f := range got {
		times[f.Path]++
		if programs[f.Path] != "" && (f.Link != "" || len(f.Content) == 0) {
			t.Errorf("%s is not this machine's", f.Path)
		}
	}
	for _, path := range []string{"/bin/busybox", "/bin/dd", "/bin/ls", "/bin/sh"} {
		if times[path] != 1 {
			t.Errorf("%s is there %d times", path, times[path])
		}
	}
}

func TestTree(t *testing.T) {
	dir := t.TempDir()
	below := filepath.Join(dir, "below")
	if err := errors.Join(
		os.Mkdir(below, 0o755),
		os.WriteFile(filepath.Join(below, "run"), []byte("program"), 0o700),
		os.WriteFile(filepath.Join(dir, "left-out"), nil, 0o644),
		os.Symlink("below/run", filepath.Join(dir, "link")),
	); err != nil {
		t.Fatal(err)
	}
	got, err := Tree(dir, func(path string) bool { return filepath.Base(path) == "left-out" })
	if err != nil {
		t.Fatal(err)
	}
	want := []ociimage.File{{Path: filepath.Join(below, "run"), Content: []byte("program"), Mode: 0o700}, {Path: filepath.Join(dir, "link"), Link: "below/run", Mode: 0o777}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := Tree(filepath.Join(dir, "none"), func(string) bool { return false }); err == nil {
		t.Error("a directory that is not there is copied")
	}
}
