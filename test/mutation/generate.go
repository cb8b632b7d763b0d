package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// generate makes the mutants of the code of these packages, each with the package's
// own tests. The same code has the same mutants, of the same names.
func generate(root string, packages []string) ([]mutation, error) {
	var out []mutation
	for _, pkg := range packages {
		entries, err := os.ReadDir(filepath.Join(root, pkg))
		if err != nil {
			return nil, fmt.Errorf("generate mutants: %w", err)
		}
		before := len(out)
		for _, e := range entries {
			mutants, err := ofFile(root, pkg, e.Name())
			if err != nil {
				return nil, fmt.Errorf("generate mutants: %w", err)
			}
			out = append(out, mutants...)
		}
		if len(out) == before {
			return nil, fmt.Errorf("generate mutants: %s has no code", pkg)
		}
	}
	return out, nil
}

// ofFile makes the mutants of a file; none of one that is not built here, or that a
// program has written.
func ofFile(root, pkg, name string) ([]mutation, error) {
	if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
		return nil, nil
	}
	dir := filepath.Join(root, pkg)
	if built, err := build.Default.MatchFile(dir, name); err != nil || !built {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	return ofText(path.Join(pkg, name), string(text))
}

func ofText(file, text string) ([]mutation, error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(parsed) {
		return nil, err
	}
	s := &source{file: file, text: text, fset: fset, names: map[string]int{}}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			ast.Walk(piece{source: s, in: functionName(d), results: d.Type.Results}, d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					ast.Walk(piece{source: s, in: v.Names[0].Name}, v)
				}
			}
		}
	}
	return s.made, nil
}

// functionName is that of a function, or type and name of a method.
func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	of := d.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.IndexListExpr:
			of = t.X
		case *ast.Ident:
			return t.Name + "." + d.Name.Name
		default:
			return d.Name.Name
		}
	}
}

// source is a file of which mutants are made.
type source struct {
	file, text string
	fset       *token.FileSet
	// names are how many mutants have each name.
	names map[string]int
	made  []mutation
}

// of is the text of a piece of the source.
func (s *source) of(n ast.Node) string {
	return s.text[s.offset(n.Pos()):s.offset(n.End())]
}

func (s *source) offset(p token.Pos) int { return s.fset.Position(p).Offset }

// short is a piece of source on one line, cut where it is too long to read.
func short(text string) string {
	const most = 60
	line := []rune(strings.Join(strings.Fields(text), " "))
	if len(line) > most {
		return string(line[:most-3]) + "..."
	}
	return string(line)
}
