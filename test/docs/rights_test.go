package docs

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoMarkersOfRights: rights are stated in deploy/ alone. A marker beside
// the code would look as if it gave one.
func TestNoMarkersOfRights(t *testing.T) {
	marker := "+kubebuilder:" + "rbac:"
	for _, dir := range []string{"pkg", "internal", "cmd", "reference"} {
		err := filepath.WalkDir(path(dir), func(p string, _ fs.DirEntry, err error) error {
			if err == nil && filepath.Ext(p) == ".go" && strings.Contains(read(t, p), marker) {
				t.Errorf("%s has a marker for RBAC, which no generator reads: change the Role in deploy/, see docs/decisions/0015-rights-by-hand.md", p)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
