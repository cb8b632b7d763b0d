package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	promisedTests = regexp.MustCompile("`((?:pkg|internal|cmd|test)/[a-z0-9/-]+)` ((?:Test\\w+(?:, )?)+|\"[^\"]+\")")
	promisedRow   = regexp.MustCompile(`(?m)^\| P(\d+) \|`)
)

// TestPromises: each test that the page of promises names is there, and no row has none.
func TestPromises(t *testing.T) {
	page := read(t, path("docs", "pods-as-volumes-promises.md"))
	if rows := promisedRow.FindAllString(page, -1); len(rows) != 34 {
		t.Errorf("%d rows, want 34", len(rows))
	}
	for line := range strings.Lines(page) {
		if !promisedRow.MatchString(line) {
			continue
		}
		found := promisedTests.FindAllStringSubmatch(line, -1)
		if len(found) == 0 {
			t.Errorf("no test is named: %s", line)
		}
		for _, m := range found {
			code := testsIn(t, path(m[1]))
			for _, name := range strings.Split(strings.Trim(m[2], `"`), ", Test") {
				want := "func Test" + strings.TrimPrefix(strings.TrimSuffix(name, ", "), "Test") + "("
				if strings.HasPrefix(m[2], `"`) {
					want = `It("` + strings.Trim(m[2], `"`)
				}
				if !strings.Contains(code, want) {
					t.Errorf("%s has no test %s", m[1], want)
				}
				if strings.HasPrefix(m[2], `"`) {
					break
				}
			}
		}
	}
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
