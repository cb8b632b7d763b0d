package archtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	claimAPI    = module + "api/moor/v1alpha1"
	claimWriter = module + "pkg/writer"
)

// compiled is a package as the compiler knows it.
type compiled struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// TestOneWriterOfTheClaim: pkg/writer alone changes the status of a WriterClaim.
// The tests, which play what others do, are left out.
func TestOneWriterOfTheClaim(t *testing.T) {
	asked := product(t)
	if len(asked) < 5 {
		t.Fatalf("only %q know of WriterClaims: the search is wrong", asked)
	}
	all := compile(t, asked)
	for _, path := range asked {
		found := changes(t, all[path], all)
		if path == claimWriter {
			if len(found) < 3 {
				t.Errorf("only %d changes are found in %s: the search is wrong", len(found), path)
			}
			continue
		}
		for _, place := range found {
			t.Errorf("%s changes the status of a WriterClaim: let a function of pkg/writer do it", place)
		}
	}
}

// product are the packages of the product that know of WriterClaims.
func product(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, p := range list(t) {
		name, layer, _ := layerOf(p.ImportPath)
		fixture := strings.HasSuffix(p.ImportPath, "test")
		if name != "" && layer < reference && !fixture && p.ImportPath != claimAPI && slices.Contains(p.Imports, claimAPI) {
			out = append(out, p.ImportPath)
		}
	}
	return out
}

// changes are the places where the package changes the status of a WriterClaim:
// where it assigns to it or to a part of it, takes an address of it, or makes one.
func changes(t *testing.T, p compiled, all map[string]compiled) []string {
	t.Helper()
	fset, files, info := checked(t, p, all)
	var out []string
	note := func(n ast.Node, e ast.Expr) {
		if ofStatus(info, e) {
			out = append(out, fset.Position(n.Pos()).String())
		}
	}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					for _, left := range n.Lhs {
						note(n, left)
					}
				}
			case *ast.IncDecStmt:
				note(n, n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					note(n, n.X)
				}
			case *ast.CompositeLit:
				if named(info.TypeOf(n), "WriterClaimStatus") {
					out = append(out, fset.Position(n.Pos()).String())
				}
			}
			return true
		})
	}
	return out
}

// checked parses the package and has the compiler say what each expression is.
func checked(t *testing.T, p compiled, all map[string]compiled) (*token.FileSet, []*ast.File, *types.Info) {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if all[path].Export == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(all[path].Export)
	})}
	if _, err := config.Check(p.ImportPath, fset, files, info); err != nil {
		t.Fatal(err)
	}
	return fset, files, info
}

// ofStatus reports whether the expression is a part of the status of a
// WriterClaim, however deep, or the field that holds it.
func ofStatus(info *types.Info, e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return ofStatus(info, e.X)
	case *ast.StarExpr:
		return named(info.TypeOf(e), "WriterClaimStatus") || ofStatus(info, e.X)
	case *ast.IndexExpr:
		return ofStatus(info, e.X)
	case *ast.SelectorExpr:
		return named(info.TypeOf(e.X), "WriterClaimStatus") ||
			named(info.TypeOf(e.X), "WriterClaim") && e.Sel.Name == "Status" || ofStatus(info, e.X)
	}
	return false
}

// named reports whether a type is this one of the API, or a pointer to it.
func named(t types.Type, name string) bool {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	n, ok := t.(*types.Named)
	return ok && n.Obj().Name() == name && n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == claimAPI
}

// compile has the compiler look at packages and at all that they import.
func compile(t *testing.T, paths []string) map[string]compiled {
	t.Helper()
	command := exec.Command("go", append([]string{"list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles"}, paths...)...)
	command.Stderr = os.Stderr
	text, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]compiled{}
	for decoder := json.NewDecoder(strings.NewReader(string(text))); ; {
		var p compiled
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("read go list: %v", err)
		}
		all[p.ImportPath] = p
	}
}
