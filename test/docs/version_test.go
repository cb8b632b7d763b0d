package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
)

// TestVersion: every program says what it was built from.
func TestVersion(t *testing.T) {
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range programs(t) {
		out, err := exec.Command(filepath.Join(dir, program), "--version").Output()
		want := regexp.MustCompile(`^` + program + ` version \S+ \(commit \S+, ` + regexp.QuoteMeta(runtime.Version()) + `\)\n$`)
		if err != nil || !want.Match(out) {
			t.Errorf("%s --version prints %q, %v; want %s", program, out, err, want)
		}
	}
}

// TestStamp: the script by which "make build" and the image build programs
// stamps them.
func TestStamp(t *testing.T) {
	dir := t.TempDir()
	build := exec.Command(path("hack", "build.sh"), dir, "./cmd/moorctl")
	build.Env = append(os.Environ(), "VERSION=v9.8.7", "COMMIT=c0ffee")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	out, err := exec.Command(filepath.Join(dir, "moorctl"), "--version").Output()
	if want := fmt.Sprintf("moorctl version v9.8.7 (commit c0ffee, %s)\n", runtime.Version()); err != nil || string(out) != want {
		t.Errorf("moorctl --version prints %q, %v; want %q", out, err, want)
	}
}
