package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// updates finds where an object, or its status, is written whole.
	updates = regexp.MustCompile(`(?:[cC]lient|Status\(\))\.Update\(ctx`)
	// cut finds caches that keep a part of a WriterClaim.
	cut = regexp.MustCompile(`WriterClaim\{\}:[^\n]*Transform`)
)

// whole are the packages that write objects whole, and which: caches keep all of these,
// or they are read from the API server itself.
var whole = map[string]string{
	"pkg/controller/failover":               "the status of WriterClaims, and the Lease of those admitted, which is read live",
	"pkg/controller/failover/detach":        "the status of WriterClaims",
	"pkg/controller/hostcluster":            "the status of WriterClaims, which are read live",
	"pkg/controller/hostcluster/attachment": "the status of WriterClaims",
	"pkg/node/heartbeat":                    "the sender's own Lease, which no cache keeps",
}

// TestPatches: caches keep of most objects what is read of them, so what is read there is
// written as a difference alone: an update would erase the rest.
func TestPatches(t *testing.T) {
	found := map[string]bool{}
	for _, dir := range []string{"cmd", "internal", "pkg"} {
		root := filepath.Join("..", "..")
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, _ := filepath.Rel(root, filepath.Dir(path))
			if name == "internal/kube/kubetest" {
				return nil
			}
			if cut.Match(text) {
				t.Errorf("%s: a cache cuts WriterClaims, whose status is written whole", path)
			}
			if !updates.Match(text) {
				return nil
			}
			if found[name] = true; whole[name] == "" {
				t.Errorf("%s updates an object: patch it, or say in this test why all of it is at hand", path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range whole {
		if !found[name] {
			t.Errorf("%s updates nothing: it is in the list for nothing", name)
		}
	}
}
