package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	suiteNames = regexp.MustCompile(`\{\[\]string\{([^}]*)\},`)
	name       = regexp.MustCompile(`"([^"]+)"`)
)

// TestBenchmarks: every result of the benchmarks is explained.
func TestBenchmarks(t *testing.T) {
	source, err := os.ReadFile(path("test", "bench", "bench.go"))
	if os.IsNotExist(err) {
		t.Skip("there are no benchmarks")
	}
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, path("docs", "benchmarks.md"))
	found := 0
	for _, suite := range suiteNames.FindAllStringSubmatch(string(source), -1) {
		for _, m := range name.FindAllStringSubmatch(suite[1], -1) {
			found++
			if !strings.Contains(page, "`"+m[1]) {
				t.Errorf("docs/benchmarks.md does not explain %s", m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no names of results found in test/bench/bench.go")
	}
}
