package docs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	promise = regexp.MustCompile(`^\| ([A-Z]\d+) \|`)
	// holders are tests, or one spec, of a package.
	holders = regexp.MustCompile("`((?:pkg|internal|cmd|reference|test)/[a-z0-9/-]+)` (\"[^\"]+\"|Test\\w+(?:, Test\\w+)*)")
)

// TestPromises: each test that a page of promises names is there, and no row names none,
// but for those that say why.
func TestPromises(t *testing.T) {
	for page, c := range map[string]struct {
		rows    map[string]int
		without []string
	}{
		"pods-as-volumes-promises.md": {map[string]int{"P": 34, "V": 5}, nil},
		"local-driver-promises.md":    {map[string]int{"H": 27}, []string{"H11", "H25"}},
	} {
		t.Run(page, func(t *testing.T) {
			rows := map[string]int{}
			for line := range strings.Lines(read(t, path("docs", page))) {
				row := promise.FindStringSubmatch(line)
				if row == nil {
					continue
				}
				letter := row[1][:1]
				rows[letter]++
				if want := fmt.Sprint(letter, rows[letter]); row[1] != want {
					t.Errorf("row %s, want %s", row[1], want)
				}
				found := holders.FindAllStringSubmatch(line, -1)
				if (len(found) == 0) != slices.Contains(c.without, row[1]) {
					t.Errorf("%d tests are named: %s", len(found), line)
				}
				wantTests(t, found)
			}
			if !maps.Equal(rows, c.rows) {
				t.Errorf("rows %v, want %v", rows, c.rows)
			}
		})
	}
}

// wantTests: what holders has found is declared in the tests of its package.
func wantTests(t *testing.T, found [][]string) {
	t.Helper()
	for _, m := range found {
		code := testsIn(t, path(m[1]))
		for _, want := range declarations(m[2]) {
			if !strings.Contains(code, want) {
				t.Errorf("%s has no %s", m[1], want)
			}
		}
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
