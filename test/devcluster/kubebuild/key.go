package kubebuild

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// inputs are the files, below the checkout, that decide what is built beside Kubernetes.
var inputs = []string{
	"hack/kube/etcd/go.mod", "hack/kube/etcd/go.sum", "hack/kube/etcd/main.go",
	"hack/kube/sidecars/go.mod", "hack/kube/sidecars/go.sum",
	"hack/kube/pause/main.go",
}

// inputs are the files, below the checkout, that decide what is built for a release.
func (r Release) inputs() []string {
	dir := pins[r.known()].dir
	return append([]string{dir + "/go.mod", dir + "/go.sum"}, inputs...)
}

// Key names the set of programs that a checkout, a Go version and a release give: the
// same key means the same programs. It is 16 hexadecimal digits.
func Key(root, goVersion string, release Release) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, goVersion)
	for _, m := range release.modules() {
		fmt.Fprintln(h, m.dir, m.ldflags, slices.Sorted(keys(m.programs)))
	}
	for _, name := range release.inputs() {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return "", fmt.Errorf("find what to build of %s: %w", name, err)
		}
		fmt.Fprintln(h, name, len(content))
		if _, err := h.Write(content); err != nil {
			return "", fmt.Errorf("hash %s: %w", name, err)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}

// CacheDir is where Moor keeps what it builds, outside of any checkout:
// $XDG_CACHE_HOME/moor or ~/.cache/moor.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory (set HOME or XDG_CACHE_HOME): %w", err)
	}
	return filepath.Join(dir, "moor"), nil
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// heading writes one line of progress; a lost line is no reason to fail.
func heading(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
