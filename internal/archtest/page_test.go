package archtest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of layers into docs/architecture.md")

// names are the layers as docs/architecture.md names them, from the top down.
var names = []struct {
	layer int
	name  string
	what  string
}{
	{tests, "tests", "the test bed, and the tests on it"},
	{reference, "reference", "the emulated SNAP service and the reference vendor, programs included; nothing of the product imports them"},
	{programs, "programs", "flags, configuration, clients, run"},
	{actors, "actors", "decide and act; they never import one another"},
	{mechanisms, "mechanisms", "how each platform and protocol works"},
	{core, "core", "what a platform can do, who may write, which node is near: values and pure functions"},
	{tools, "tools", "no decision of Moor's"},
	{api, "api", "types and generated code"},
}

// TestPage holds the table of docs/architecture.md to the table of layers.
func TestPage(t *testing.T) {
	const begin, end = "<!-- begin layers -->\n", "<!-- end layers -->"
	page := filepath.Join("..", "..", "docs", "architecture.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(text), begin)
	got, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no table of layers", page)
	}
	want := table()
	if *update {
		if err := os.WriteFile(page, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != want {
		t.Errorf("%s is not what the table of layers says: go test ./internal/archtest -update", page)
	}
}

func table() string {
	var b strings.Builder
	b.WriteString("| Layer | Packages | What it is |\n|---|---|---|\n")
	for _, n := range names {
		var packages []string
		for prefix, layer := range layers {
			if layer == n.layer {
				packages = append(packages, "`"+prefix+"`")
			}
		}
		slices.Sort(packages)
		fmt.Fprintf(&b, "| %s | %s | %s |\n", n.name, strings.Join(packages, ", "), n.what)
	}
	return b.String()
}
