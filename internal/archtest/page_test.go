package archtest

import (
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what is generated into docs/architecture.md")

// described are the layers as docs/architecture.md shows them, from the top down.
var described = []struct {
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

// TestPage holds docs/architecture.md to what the table of layers, the imports
// and the package comments say.
func TestPage(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "architecture.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all := list(t)
	want := string(text)
	for name, part := range map[string]string{"drawing": drawing(all), "layers": layerTable(), "packages": packageTable(all), "processes": processTable(t, all)} {
		begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
		head, rest, found := strings.Cut(want, begin)
		_, tail, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("%s has no place for the %s: %s%s", page, name, begin, end)
		}
		want = head + begin + part + end + tail
	}
	switch {
	case want == string(text):
	case *update:
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not what the code says: go test ./internal/archtest -update", page)
	}
}

func layerTable() string {
	var b strings.Builder
	b.WriteString("| Layer | Packages | What it is |\n|---|---|---|\n")
	for _, d := range described {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", d.name, strings.Join(prefixes(d.layer), ", "), d.what)
	}
	return b.String()
}

func prefixes(layer int) []string {
	var out []string
	for prefix, l := range layers {
		if l == layer {
			out = append(out, "`"+prefix+"`")
		}
	}
	slices.Sort(out)
	return out
}

// packageTable lists every package of the product and of the reference
// implementation, with the first sentence of its comment.
func packageTable(all []pkg) string {
	var b strings.Builder
	b.WriteString("| Package | Owns |\n|---|---|\n")
	for _, d := range described {
		if d.layer == tests {
			continue
		}
		for _, p := range all {
			path := strings.TrimPrefix(p.ImportPath, module)
			if _, layer, ok := layerOf(p.ImportPath); !ok || layer != d.layer || strings.HasPrefix(path, "hack/") {
				continue
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", path, owns(p.Doc))
		}
	}
	return b.String()
}

// processTable lists the programs of the product with the actors in each.
func processTable(t *testing.T, all []pkg) string {
	t.Helper()
	imports := map[string][]string{"moor-scheduler": scheduler(t)}
	for _, p := range all {
		if name, program := strings.CutPrefix(p.ImportPath, module+"cmd/"); program {
			imports[name] = p.Imports
		}
	}
	var b strings.Builder
	b.WriteString("| Process | Packages that act in it |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		var acting []string
		for _, i := range imports[name] {
			if _, layer, ok := layerOf(i); ok && layer == actors {
				acting = append(acting, "`"+strings.TrimPrefix(i, module)+"`")
			}
		}
		if len(acting) > 0 {
			fmt.Fprintf(&b, "| %s | %s |\n", name, strings.Join(acting, ", "))
		}
	}
	return b.String()
}

// scheduler are the imports of moor-scheduler, which is in a module of its own: go list
// does not see it from here.
func scheduler(t *testing.T) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "hack", "kube", "scheduler", "main.go"), nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, i := range f.Imports {
		out = append(out, strings.Trim(i.Path.Value, `"`))
	}
	return out
}

// owns is what the first sentence of a package's comment says of it.
func owns(doc string) string {
	words := strings.Fields(strings.TrimSuffix(doc, "."))
	if len(words) > 2 && (words[0] == "Package" || words[0] == "Command") {
		words = words[2:]
	}
	if len(words) > 1 && words[0] == "is" {
		words = words[1:]
	}
	return strings.ReplaceAll(strings.Join(words, " "), "|", `\|`)
}

// boxes are what the drawing shows: a package belongs to the longest prefix.
var boxes = []string{
	"cmd", "pkg/controller", "pkg/node", "pkg/scheduler", "pkg/provisioner", "pkg/csiserver", "pkg/vendorplugin", "pkg/nodehealth",
	"pkg/writer", "pkg/placement", "internal", "api", "reference", "test",
}

func boxOf(path string) string {
	best := ""
	for _, b := range boxes {
		rest := strings.TrimPrefix(path, module)
		if (rest == b || strings.HasPrefix(rest, b+"/")) && len(b) > len(best) {
			best = b
		}
	}
	return best
}

// drawing is a Mermaid flowchart of the imports between boxes. Imports of api and
// internal, which nearly every package has, are left out.
func drawing(all []pkg) string {
	arrows, used := map[string]bool{}, map[string]bool{}
	for _, p := range all {
		from := boxOf(p.ImportPath)
		if from == "" {
			continue
		}
		used[from] = true
		for _, i := range p.Imports {
			to := boxOf(i)
			if to != "" && to != from && to != "api" && to != "internal" {
				arrows[fmt.Sprintf("  %s --> %s\n", id(from), id(to))] = true
			}
		}
	}
	var b strings.Builder
	b.WriteString("```mermaid\nflowchart TB\n")
	for _, box := range boxes {
		if used[box] {
			fmt.Fprintf(&b, "  %s[\"%s\"]\n", id(box), box)
		}
	}
	for _, a := range slices.Sorted(maps.Keys(arrows)) {
		b.WriteString(a)
	}
	b.WriteString("```\n")
	return b.String()
}

func id(box string) string { return strings.ReplaceAll(box, "/", "_") }
