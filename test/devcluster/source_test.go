package devcluster

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSource: everything that is built makes a checkout dirty.
func TestSource(t *testing.T) {
	root := t.TempDir()
	put := func(file, text string) {
		t.Helper()
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		if _, err := Git(t.Context(), root, args...); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]bool{
		"cmd/x/main.go": true, "go.mod": true, "go.sum": true, "crds/host/a.yaml": true, "deploy/host/b.yaml": true,
		"hack/steps.sh": true, "test/devcluster/files/kubelet.yaml": true, "Makefile": true,
		"docs/benchmarks.md": false, "bench/results/x.json": false, "README.md": false, "api/README.md": false,
	}
	git("init", "-q")
	for file := range files {
		put(file, "old")
	}
	git("add", "-A")
	git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "all")
	clean := ReadSource(t.Context(), root)
	if clean.Dirty || len(clean.Commit) != 12 {
		t.Fatalf("a checkout as it was committed is %+v", clean)
	}
	for file, dirty := range files {
		put(file, "new")
		if got := ReadSource(t.Context(), root); got.Dirty != dirty || got.Commit != clean.Commit {
			t.Errorf("with a change of %s: %+v, want dirty %t", file, got, dirty)
		}
		put(file, "old")
	}
	put("pkg/x/new.go", "package x")
	if got := ReadSource(t.Context(), root); !got.Dirty {
		t.Error("a new file leaves the checkout clean")
	}
	if got := ReadSource(t.Context(), t.TempDir()); got.Commit != "unknown" || !got.Dirty {
		t.Errorf("outside of git: %+v", got)
	}
}
