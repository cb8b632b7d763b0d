package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// maxLines is the longest that a file written by hand may be: one idea fits.
const maxLines = 400

func TestFilesAreShort(t *testing.T) {
	eachFile(t, func(path string, text []byte) {
		if lines := bytes.Count(text, []byte("\n")); lines > maxLines && !generated(t, path, text) {
			t.Errorf("%s has %d lines, more than %d: split it by idea", path, lines, maxLines)
		}
	})
}

// maxBytes is the largest that any file may be: what is larger was built.
const maxBytes = 1 << 20

// TestNoProgramIsKept: what a build leaves outside of bin is easily taken for a source.
func TestNoProgramIsKept(t *testing.T) {
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir():
			return nil
		}
		info, err := d.Info()
		if err == nil && info.Size() > maxBytes {
			t.Errorf("%s has %d bytes, more than %d", path, info.Size(), maxBytes)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// eachFile hands every Go file of the module to do.
func eachFile(t *testing.T, do func(path string, text []byte)) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			do(path, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func generated(t *testing.T, path string, text []byte) bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	return ast.IsGenerated(f)
}

// maxFunction is the longest that a function may be, in lines: it fits on a screen.
const maxFunction = 55

func TestFunctionsAreShort(t *testing.T) {
	eachFile(t, func(path string, text []byte) {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(f) || strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if lines := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1; lines > maxFunction {
				t.Errorf("%s: %s has %d lines, more than %d: split it", path, fn.Name.Name, lines, maxFunction)
			}
		}
	})
}

// maxBranches is how complex a function of pkg/writer may be, by McCabe's count: who may
// write has to be seen at a glance. For all other code the linter's limit holds.
const maxBranches = 12

func TestWriterIsPlain(t *testing.T) {
	most := 0
	eachFile(t, func(path string, text []byte) {
		if filepath.Base(filepath.Dir(path)) != "writer" || strings.HasSuffix(path, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				n := branches(fn)
				most = max(most, n)
				if n > maxBranches {
					t.Errorf("%s: %s has a cyclomatic complexity of %d, more than %d: split it", path, fn.Name.Name, n, maxBranches)
				}
			}
		}
	})
	if most < 5 {
		t.Errorf("the most complex function has %d: the count is wrong", most)
	}
}

// branches is the cyclomatic complexity of a function.
func branches(fn *ast.FuncDecl) int {
	n := 1
	ast.Inspect(fn, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if node.List != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// maxFiles is how many source files a package may have, tests and generated ones
// not counted: beyond that it owns more than one thing.
const maxFiles = 10

// manyFiles are the packages that may have more, with the reason.
var manyFiles = map[string]string{
	"api/storage/v1alpha1":            "a file for each kind",
	"internal/kube":                   "tools of a few lines each, which do not know of one another",
	"internal/hostdev":                "a file for each thing that a host does with a device",
	"pkg/provisioner/provisionertest": "a suite for each interface, and the fake",
	"pkg/writer":                      "a file for each rule, and for each thing that can be a proof",
	"test/bench":                      "a file for each measurement",
	"test/devcluster":                 "a file for each part of the bed",
	"test/mutation":                   "a file for each group of mutations, and for what generates, tries and sums them up",
}

func TestPackagesAreSmall(t *testing.T) {
	count := map[string]int{}
	eachFile(t, func(path string, text []byte) {
		if !strings.HasSuffix(path, "_test.go") && !generated(t, path, text) {
			dir, err := filepath.Rel(filepath.Join("..", ".."), filepath.Dir(path))
			if err != nil {
				t.Fatal(err)
			}
			count[filepath.ToSlash(dir)]++
		}
	})
	for dir, files := range count {
		if _, may := manyFiles[dir]; files > maxFiles && !may {
			t.Errorf("%s has %d source files, more than %d: split it, or say why in manyFiles", dir, files, maxFiles)
		}
	}
	for dir, why := range manyFiles {
		if count[dir] <= maxFiles {
			t.Errorf("%s has %d source files: it needs no reason any more (%s)", dir, count[dir], why)
		}
	}
}
