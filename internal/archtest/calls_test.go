package archtest

import (
	"go/ast"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// oneWay are the packages that a reader goes through file by file, from the top down: they
// hold what is done to the right to write, in several steps.
var oneWay = []string{"pkg/controller/failover", "pkg/node/dpu", "pkg/provisioner/snap/nvme", "pkg/provisioner/snap/service", "pkg/provisioner/snap/virtiofs"}

// TestCallsGoOneWay: the files of these packages have an order in which each calls only
// what is in itself and in those below it.
func TestCallsGoOneWay(t *testing.T) {
	var paths []string
	for _, name := range oneWay {
		paths = append(paths, module+name)
	}
	all := compile(t, paths)
	for _, path := range paths {
		calls := between(t, all[path], all)
		if len(calls) < 2 {
			t.Errorf("%s has calls of %d files: the search is wrong", path, len(calls))
		}
		if round := circle(calls); len(round) > 0 {
			t.Errorf("%s: files call each other in a circle: %s", path, strings.Join(round, " -> "))
		}
	}
}

// between are the files of a package, and those that each calls a function or a method of.
func between(t *testing.T, p compiled, all map[string]compiled) map[string][]string {
	t.Helper()
	fset, files, info := checked(t, p, all)
	out := map[string][]string{}
	for _, f := range files {
		from := filepath.Base(fset.Position(f.Pos()).Filename)
		out[from] = nil
		ast.Inspect(f, func(n ast.Node) bool {
			name, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			called, ok := info.Uses[name].(*types.Func)
			if !ok || called.Pkg() == nil || called.Pkg().Path() != p.ImportPath {
				return true
			}
			to := filepath.Base(fset.Position(called.Origin().Pos()).Filename)
			if to != from && !slices.Contains(out[from], to) {
				out[from] = append(out[from], to)
			}
			return true
		})
	}
	return out
}

// circle is a way from a file through its calls back to it; empty if there is none.
func circle(calls map[string][]string) []string {
	done := map[string]bool{}
	var walk func(file string, way []string) []string
	walk = func(file string, way []string) []string {
		if i := slices.Index(way, file); i >= 0 {
			return append(way[i:], file)
		}
		if done[file] {
			return nil
		}
		for _, next := range calls[file] {
			if round := walk(next, append(slices.Clone(way), file)); round != nil {
				return round
			}
		}
		done[file] = true
		return nil
	}
	for _, file := range slices.Sorted(maps.Keys(calls)) {
		if round := walk(file, nil); round != nil {
			return round
		}
	}
	return nil
}

func TestCircleIsFound(t *testing.T) {
	for name, tt := range map[string]struct {
		calls map[string][]string
		want  string
	}{
		"none":      {map[string][]string{"a": {"b", "c"}, "b": {"c"}, "c": nil}, ""},
		"of two":    {map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"b"}}, "b c b"},
		"of itself": {map[string][]string{"a": {"b"}, "b": {"a", "c"}, "c": nil}, "a b a"},
	} {
		if got := strings.Join(circle(tt.calls), " "); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
