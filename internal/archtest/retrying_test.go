package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// registered finds where a reconciler is given to controller-runtime, and what
// is given.
var registered = regexp.MustCompile(`\b(?:Complete|Build)\(([^)]*)`)

// TestReconcilersRetry: a conflict is no failure, of no reconciler.
func TestReconcilersRetry(t *testing.T) {
	found := 0
	err := filepath.WalkDir(filepath.Join("..", "..", "pkg"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "NewControllerManagedBy(") {
			return err
		}
		for _, m := range registered.FindAllSubmatch(text, -1) {
			found++
			if !strings.HasPrefix(string(m[1]), "kube.Retrying(") {
				t.Errorf("%s registers %s: register it through kube.Retrying", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 10 {
		t.Errorf("found %d reconcilers: the search is wrong", found)
	}
}
