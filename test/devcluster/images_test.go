package devcluster

import (
	"slices"
	"testing"

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
