package docs

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/moor-storage/moor/test/bench/results"
)

var (
	suiteNames = regexp.MustCompile(`\{names: \[\]string\{([^}]*)\},`)
	quotedName = regexp.MustCompile(`"([^"]+)"`)
)

// TestBenchmarks: every result of the benchmarks is explained.
func TestBenchmarks(t *testing.T) {
	source := read(t, path("test", "bench", "bench.go"))
	page := read(t, path("docs", "benchmarks.md"))
	found := 0
	for _, suite := range suiteNames.FindAllStringSubmatch(source, -1) {
		for _, m := range quotedName.FindAllStringSubmatch(suite[1], -1) {
			found++
			if !strings.Contains(page, "`"+m[1]) {
				t.Errorf("docs/benchmarks.md does not explain %s", m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d names of results found in test/bench/bench.go", found)
	}
}

// TestResults: the files of results are as the program wrote them, and the page
// says what follows from them, no more and no less. It detects what was changed by
// hand; it is no proof against a forger.
func TestResults(t *testing.T) {
	files, err := results.Files(path("bench", "results"))
	if err != nil {
		t.Fatal(err)
	}
	known, err := results.LoadKnownMisses(path("bench", "known-misses.json"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path("docs", "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := results.Page(page, files, known)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, want) {
		t.Error("docs/benchmarks.md does not say what bench/results holds: run go run ./test/bench --render")
	}
}

// TestOlderResultsAreNotQuoted: what was measured before samples were kept is no
// claim of any page. A newer file may have the name of an older one.
func TestOlderResultsAreNotQuoted(t *testing.T) {
	older, err := filepath.Glob(path("bench", "results", "older", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, path("docs", "benchmarks.md"))
	for _, file := range older {
		name := filepath.Base(file)
		_, err := os.Stat(path("bench", "results", name))
		if strings.Contains(page, "older/"+name) || err != nil && strings.Contains(page, name) {
			t.Errorf("docs/benchmarks.md quotes %s", file)
		}
	}
}
