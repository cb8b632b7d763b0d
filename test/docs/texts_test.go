package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	joined = regexp.MustCompile(`"\s*\+\s*"`)
	// quoted is a text in the first column of the troubleshooting tables.
	quoted = regexp.MustCompile("(?m)^\\| `([^`]+)`(.*?) \\| ")
)

// gap stands in a quoted text for what differs from case to case.
const gap = "…"

// minQuote is the shortest piece of a text that says anything, in bytes.
const minQuote = 6

// TestTexts holds the troubleshooting page to the code: every text that it
// quotes is there, in one file, piece by piece.
func TestTexts(t *testing.T) {
	files := sources(t)
	matches := quoted.FindAllStringSubmatch(read(t, path("docs", "troubleshooting.md")), -1)
	if len(matches) < 40 {
		t.Errorf("only %d texts found in the tables", len(matches))
	}
	for _, m := range matches {
		if !anyHolds(files, strings.Split(m[1], gap)) {
			t.Errorf("docs/troubleshooting.md quotes %q, which no source file has any more: correct the page", m[1])
		}
	}
}

func anyHolds(files []string, pieces []string) bool {
	for _, f := range files {
		if holds(f, pieces) {
			return true
		}
	}
	return false
}

func holds(file string, pieces []string) bool {
	for _, p := range pieces {
		if p = strings.TrimSpace(p); len(p) >= minQuote && !strings.Contains(file, p) {
			return false
		}
	}
	return true
}

// sources are the program's files, with texts over several lines made whole.
func sources(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, dir := range []string{"api", "cmd", "internal", "pkg", "reference", "test/cmd", "test/devcluster"} {
		err := filepath.WalkDir(path(dir), func(p string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
				return err
			}
			content, err := os.ReadFile(p)
			text := joined.ReplaceAllString(string(content), "")
			out = append(out, strings.ReplaceAll(text, `\"`, `"`))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}
