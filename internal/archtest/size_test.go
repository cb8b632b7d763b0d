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
