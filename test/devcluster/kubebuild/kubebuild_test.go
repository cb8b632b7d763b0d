package kubebuild

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func checkout(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range slices.Concat(Default.inputs(), Oldest.inputs(), Newest.inputs()) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("content of "+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func key(t *testing.T, root, version string) string {
	t.Helper()
	k, err := Key(root, version, Default)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeyChangesWithEveryInput(t *testing.T) {
	root := checkout(t)
	first := key(t, root, "go1.26")
	if again := key(t, checkout(t), "go1.26"); again != first {
		t.Errorf("the same checkout at another place has key %s, want %s", again, first)
	}
	seen := map[string]string{first: "the first", key(t, root, "go1.27"): "another Go"}
	if len(seen) != 2 {
		t.Error("another Go version has the same key")
	}
	for _, name := range Default.inputs() {
		if err := os.WriteFile(filepath.Join(root, name), []byte("changed"), 0o644); err != nil {
			t.Fatal(err)
		}
		k := key(t, root, "go1.26")
		if other, ok := seen[k]; ok {
			t.Errorf("after a change of %s the key is that of %s", name, other)
		}
		seen[k] = name
	}
}

func TestKeyNamesTheMissingInput(t *testing.T) {
	root := checkout(t)
	if err := os.Remove(filepath.Join(root, "hack/kube/etcd/go.sum")); err != nil {
		t.Fatal(err)
	}
	if _, err := Key(root, "go1.26", Default); err == nil || !strings.Contains(err.Error(), "etcd/go.sum") {
		t.Errorf("error %v, want one that names hack/kube/etcd/go.sum", err)
	}
}

func TestMissing(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "etcd"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := missing(bin, []string{"etcd", "kubectl"}); len(got) != 1 || got[0] != "kubectl" {
		t.Errorf("missing %v, want kubectl", got)
	}
	if got := missing(bin, nil); len(got) != len(Programs())-1 {
		t.Errorf("missing %v, want all but etcd", got)
	}
}

func TestBuildRefusesAnUnknownProgram(t *testing.T) {
	_, err := Build(context.Background(), checkout(t), Default, []string{"kube-proxy"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "kube-proxy") {
		t.Errorf("error %v, want one that names kube-proxy", err)
	}
}

func TestOnlyAFailedDownloadIsWorthAnotherTry(t *testing.T) {
	for output, want := range map[string]bool{
		"# example.org/x\nx.go:1:1: syntax error\n":                  true,
		"go: downloading a v1\n# example.org/x\nx.go:1:1: error\n":   true,
		"go: a@v1: Get \"https://proxy/a\": dial tcp: i/o timeout\n": false,
		"": false,
	} {
		if got := sourceError(output); got != want {
			t.Errorf("%q is the fault of the source: %v, want %v", output, got, want)
		}
	}
}

// TestReleases: what a release is said to be is what its module requires, each has a key of its own,
// and no other is taken.
func TestReleases(t *testing.T) {
	root, seen := filepath.Join("..", "..", ".."), map[string]Release{}
	for release, pin := range pins {
		content, err := os.ReadFile(filepath.Join(root, pin.dir, "go.mod"))
		if err != nil || !strings.Contains(string(content), "\nrequire k8s.io/kubernetes "+pin.version+"\n") {
			t.Errorf("%s does not require Kubernetes %s (%v)", pin.dir, pin.version, err)
		}
		k, err := Key(root, "go1.26", release)
		if other, is := seen[k]; err != nil || is {
			t.Errorf("release %s has the key of %s (%v)", release, other, err)
		}
		seen[k] = release
		var set Release
		if err := set.Set(string(release)); err != nil || set != release {
			t.Errorf("release %s is taken as %q: %v", release, set, err)
		}
	}
	if Release("").Version() != Default.Version() {
		t.Error("no release is not the default one")
	}
	if err := new(Release).Set("v1.35.4"); err == nil || !strings.Contains(err.Error(), "want oldest, default or newest") {
		t.Errorf("error %v", err)
	}
}
