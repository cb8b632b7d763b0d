package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	promise = regexp.MustCompile(`^\| P\d+ \|`)
	// holders are tests, or one spec, of a package.
	holders = regexp.MustCompile("`((?:pkg|internal|cmd|test)/[a-z0-9/-]+)` (\"[^\"]+\"|Test\\w+(?:, Test\\w+)*)")
)

// TestPromises: each test that the page of promises names is there, and no row names none.
func TestPromises(t *testing.T) {
	rows := 0
	for line := range strings.Lines(read(t, path("docs", "pods-as-volumes-promises.md"))) {
		if !promise.MatchString(line) {
			continue
		}
		rows++
		found := holders.FindAllStringSubmatch(line, -1)
		if len(found) == 0 {
			t.Errorf("no test is named: %s", line)
		}
		for _, m := range found {
			code := testsIn(t, path(m[1]))
			for _, want := range declarations(m[2]) {
				if !strings.Contains(code, want) {
					t.Errorf("%s has no %s", m[1], want)
				}
			}
		}
	}
	if rows != 34 {
		t.Errorf("%d rows, want 34", rows)
	}
}

// declarations are how what is named begins in the code.
func declarations(named string) []string {
	if strings.HasPrefix(named, `"`) {
		return []string{"It(" + strings.TrimSuffix(named, `"`)}
	}
	var out []string
	for _, test := range strings.Split(named, ", ") {
		out = append(out, "func "+test+"(")
	}
	return out
}

// testsIn is the code of all tests in a directory.
func testsIn(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", dir, err)
	}
	var all strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
	}
	return all.String()
}
