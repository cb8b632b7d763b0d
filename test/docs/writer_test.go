package docs

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestRulesOfTheWriter: the comment of pkg/writer and the table of rules in
// docs/safety.md name each file, so that none holds a rule unseen.
func TestRulesOfTheWriter(t *testing.T) {
	files, err := filepath.Glob(path("pkg", "writer", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in pkg/writer: %v", err)
	}
	comment, page := read(t, path("pkg", "writer", "doc.go")), read(t, path("docs", "safety.md"))
	for _, file := range files {
		name := filepath.Base(file)
		if name == "doc.go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		if !strings.Contains(comment, name) {
			t.Errorf("pkg/writer/doc.go does not say which rule %s holds", name)
		}
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/safety.md has no row for %s", name)
		}
	}
}
