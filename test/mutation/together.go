package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// chosenBy is the variable by which a program of tests learns which mutant it is.
const chosenBy = "MOOR_MUTANT"

// program is one program of a package's tests that holds all mutants of its functions:
// linking one for each takes longer than most tests. Each is a copy of its function, and
// the function calls the one that is chosen.
type program struct {
	root, dir, pkg string
	// mutants by their number, from 1 on, and the numbers by their names.
	mutants map[int]mutation
	numbers map[string]int
	// stillborn says of a mutant why it does not compile.
	stillborn map[int]string
	// lines are, of each file that was written, where the copies begin.
	lines map[string][]begin
	// reached are the tests that reach each mutant.
	reached *reach
}

type begin struct{ line, mutant int }

// together builds the program of the mutants of a package; those outside of functions are
// not in it.
func together(ctx context.Context, root, dir, pkg string, made []mutation) (*program, error) {
	p := &program{root: root, dir: dir, pkg: pkg, mutants: map[int]mutation{}, numbers: map[string]int{}, stillborn: map[int]string{}}
	for i, m := range made {
		if m.tests == "./"+pkg {
			p.mutants[i+1], p.numbers[m.name] = m, i+1
		}
	}
	for range len(p.mutants) + 2 {
		overlay, err := p.write()
		if err != nil {
			return nil, err
		}
		out, err := command(ctx, root, "go", "test", "-c", "-vet=off", "-gcflags=-e", "-ldflags=-s -w", "-overlay="+overlay, "-o="+p.path(), "./"+pkg).CombinedOutput()
		if err == nil {
			p.reached, err = reachOf(ctx, root, dir, pkg)
			return p, err
		}
		if !p.bury(string(out)) {
			return nil, fmt.Errorf("build the mutants of %s together: %w\n%s", pkg, err, out)
		}
	}
	return nil, fmt.Errorf("build the mutants of %s together: it does not end", pkg)
}

func (p *program) path() string { return filepath.Join(p.dir, path.Base(p.pkg)+".mutants") }

// compileError finds the file and line of what does not compile.
var compileError = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):\d+: (.*)$`)

// bury takes the mutants out that do not compile; false if there is none.
func (p *program) bury(out string) bool {
	some := false
	for _, found := range compileError.FindAllStringSubmatch(out, -1) {
		line, _ := strconv.Atoi(found[2])
		for _, b := range slices.Backward(p.lines[path.Base(found[1])]) {
			if b.line > line {
				continue
			}
			if b.mutant > 0 {
				p.stillborn[b.mutant] = found[3]
				delete(p.mutants, b.mutant)
				some = true
			}
			break
		}
	}
	return some
}

// write writes the files with the copies, and returns the path of what has the go command
// take them.
func (p *program) write() (string, error) {
	byFile, replace := map[string][]int{}, map[string]string{}
	for _, i := range slices.Sorted(maps.Keys(p.mutants)) {
		file := p.mutants[i].edits[0].file
		byFile[file] = append(byFile[file], i)
	}
	p.lines = map[string][]begin{}
	name := ""
	for file, numbers := range byFile {
		text, err := os.ReadFile(filepath.Join(p.root, file))
		if err != nil {
			return "", fmt.Errorf("build mutants together: %w", err)
		}
		var outside []int
		var with string
		if with, name, outside, err = p.copies(file, string(text), numbers); err != nil {
			return "", err
		}
		for _, i := range outside {
			delete(p.mutants, i)
		}
		replace[filepath.Join(p.root, file)] = filepath.Join(p.dir, path.Base(file))
		if err := os.WriteFile(filepath.Join(p.dir, path.Base(file)), []byte(with), 0o600); err != nil {
			return "", fmt.Errorf("build mutants together: %w", err)
		}
	}
	chooser := fmt.Sprintf("package %s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar mutantNow, _ = strconv.Atoi(os.Getenv(%q))\n", name, chosenBy)
	replace[filepath.Join(p.root, p.pkg, "zz_mutant_now.go")] = filepath.Join(p.dir, "zz_mutant_now.go")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	overlay := filepath.Join(p.dir, "overlay.json")
	return overlay, errors.Join(err, os.WriteFile(filepath.Join(p.dir, "zz_mutant_now.go"), []byte(chooser), 0o600), os.WriteFile(overlay, text, 0o600))
}

// copies is the text of a file with a copy of its function for each mutant. Those outside of
// functions are returned.
func (p *program) copies(file, text string, numbers []int) (with, name string, outside []int, err error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return "", "", nil, fmt.Errorf("build mutants together: %w", err)
	}
	s := &source{file: file, text: text, fset: fset}
	left := slices.Clone(numbers)
	var body, tail strings.Builder
	done := 0
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		var mine []int
		for _, i := range left {
			if at := p.mutants[i].at; at >= s.offset(f.Pos()) && at < s.offset(f.End()) {
				mine = append(mine, i)
			}
		}
		if len(mine) == 0 {
			continue
		}
		left = slices.DeleteFunc(left, func(i int) bool { return slices.Contains(mine, i) })
		c := s.copier(f)
		body.WriteString(text[done:s.offset(f.Pos())])
		body.WriteString(c.original(mine))
		done = s.offset(f.End())
		for _, i := range mine {
			tail.WriteString(fmt.Sprintf("\n//mutant %d\n", i) + c.mutated(i, p.mutants[i]))
		}
	}
	with = body.String() + text[done:] + "\n//mutant 0\n" + tail.String()
	p.lines[path.Base(file)] = beginnings(with)
	return with, parsed.Name.Name, left, nil
}

// beginnings are the lines at which the copies begin.
func beginnings(text string) (out []begin) {
	for n, line := range strings.Split(text, "\n") {
		if number, ok := strings.CutPrefix(line, "//mutant "); ok {
			i, _ := strconv.Atoi(number)
			out = append(out, begin{n + 1, i})
		}
	}
	return out
}

// copier makes copies of a function: head is its text up to the name, signature that from
// there to the body, with a name for each parameter.
type copier struct {
	*source
	f                         *ast.FuncDecl
	head, signature, pass, on string
}

func (s *source) copier(f *ast.FuncDecl) *copier {
	c := &copier{source: s, f: f, head: "func "}
	n := 0
	if f.Recv != nil {
		fields, names := s.named(f.Recv, &n)
		c.head += "(" + fields + ") "
		c.on = names + "."
	}
	if f.Type.TypeParams != nil {
		var types []string
		for _, field := range f.Type.TypeParams.List {
			for _, name := range field.Names {
				types = append(types, name.Name)
			}
		}
		c.signature = s.of(f.Type.TypeParams)
		c.pass = "[" + strings.Join(types, ", ") + "]"
	}
	fields, names := s.named(f.Type.Params, &n)
	c.signature += "(" + fields + ") "
	c.pass += "(" + names + ")"
	if f.Type.Results != nil {
		c.signature += s.of(f.Type.Results) + " "
	}
	return c
}

// named are parameters, each with a name, and what passes them on. n counts the names that
// were given.
func (s *source) named(fields *ast.FieldList, n *int) (declared, passed string) {
	var out, names []string
	for _, field := range fields.List {
		var of []string
		for i := range max(1, len(field.Names)) {
			name := "_"
			if len(field.Names) > 0 {
				name = field.Names[i].Name
			}
			if name == "_" {
				*n++
				name = fmt.Sprintf("mutantParam%d", *n)
			}
			of = append(of, name)
			if _, ok := field.Type.(*ast.Ellipsis); ok {
				name += "..."
			}
			names = append(names, name)
		}
		out = append(out, strings.Join(of, ", ")+" "+s.of(field.Type))
	}
	return strings.Join(out, ", "), strings.Join(names, ", ")
}

func mutantName(i int, name string) string { return fmt.Sprintf("mutant%d_%s", i, name) }

// original is the function, which calls the copy that is chosen.
func (c *copier) original(numbers []int) string {
	var b strings.Builder
	b.WriteString(c.head + c.f.Name.Name + c.signature + "{\n\tswitch mutantNow {\n")
	for _, i := range numbers {
		call := c.on + mutantName(i, c.f.Name.Name) + c.pass
		if c.f.Type.Results == nil {
			fmt.Fprintf(&b, "\tcase %d:\n\t\t%s\n\t\treturn\n", i, call)
		} else {
			fmt.Fprintf(&b, "\tcase %d:\n\t\treturn %s\n", i, call)
		}
	}
	b.WriteString("\t}\n" + c.text[c.offset(c.f.Body.Lbrace)+1:c.offset(c.f.End())])
	return b.String()
}

// mutated is the copy with a mutant.
func (c *copier) mutated(i int, m mutation) string {
	from, to, e := c.offset(c.f.Body.Lbrace), c.offset(c.f.End()), m.edits[0]
	return c.head + mutantName(i, c.f.Name.Name) + c.signature + c.text[from:m.at] + e.new + c.text[m.at+len(e.old):to] + "\n"
}

// try runs the tests that reach a mutant, and returns which caught it.
func (p *program) try(ctx context.Context, m mutation) (string, error) {
	i := p.numbers[m.name]
	if why := p.stillborn[i]; why != "" {
		return "", fmt.Errorf("mutation %q: %w\n%s", m.name, errStillborn, why)
	}
	if _, ok := p.mutants[i]; !ok { // it is outside of a function
		return inTests(ctx, p.root, m)
	}
	names, took, err := p.reached.tests(m)
	if err != nil || len(names) == 0 {
		return "", err
	}
	limit := max(hangs/2, 10*took)
	ctx, cancel := context.WithTimeout(ctx, limit+time.Minute)
	defer cancel()
	cmd := command(ctx, filepath.Join(p.root, p.pkg), p.path(), "-test.failfast", "-test.timeout="+limit.String(), "-test.run=^("+strings.Join(names, "|")+")$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", chosenBy, i))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return "", nil
	}
	return caughtBy(m, out, err)
}

// programs are those of the packages whose mutants are tried.
type programs struct {
	dir string
	of  map[string]*program
}

func newTogether() (*programs, error) {
	dir, err := os.MkdirTemp("", "moor-mutants-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for mutants: %w", err)
	}
	return &programs{dir: dir, of: map[string]*program{}}, nil
}

func (t *programs) remove() { _ = os.RemoveAll(t.dir) }

// control builds the programs, and runs each test with nothing switched off.
func (t *programs) control(ctx context.Context, root string, chosen []mutation) error {
	for _, m := range chosen {
		if t.of[m.tests] != nil {
			continue
		}
		dir := filepath.Join(t.dir, strings.ReplaceAll(m.tests, "/", "_"))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("make a directory for mutants: %w", err)
		}
		p, err := together(ctx, root, dir, strings.TrimPrefix(m.tests, "./"), chosen)
		if err != nil {
			return err
		}
		t.of[m.tests] = p
	}
	return nil
}

func (t *programs) try(ctx context.Context, _ string, m mutation) (string, error) {
	return t.of[m.tests].try(ctx, m)
}
