package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// piece walks through the pieces of a function, and makes the mutants of each.
type piece struct {
	*source
	// in is the function, or the variable or constant outside of one.
	in string
	// results are those of the function that is left by a return.
	results *ast.FieldList
	// above is what the next piece is a part of.
	above ast.Node
}

// Visit makes the mutants of n.
func (p piece) Visit(n ast.Node) ast.Visitor {
	if p.logs(n) {
		return nil
	}
	switch n := n.(type) {
	case *ast.FuncLit:
		p.results = n.Type.Results
	case *ast.IfStmt:
		p.condition(n.Cond, p.of(n.Cond))
	case *ast.ForStmt:
		if n.Cond != nil { // one that is always true would not end
			p.become(n.Cond, p.of(n.Cond), "never", "negated")
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			p.cases(n.Body.List)
		}
	case *ast.BinaryExpr:
		p.operator(n)
	case *ast.BasicLit:
		p.constant(n)
	case *ast.ReturnStmt:
		p.returned(n)
	case *ast.BlockStmt:
		p.statements(n.List)
	case *ast.CaseClause:
		p.statements(n.Body)
	case *ast.CommClause:
		p.statements(n.Body)
	}
	p.above = n
	return p
}

// add makes a mutant in which another text is in the place of old. Its name says what was done
// to which piece of the source, and is its own.
func (p piece) add(old ast.Node, with, to, done string) {
	name := fmt.Sprintf("%s %s: %s: %s", path.Base(p.file), p.in, short(to), done)
	p.names[name]++
	if n := p.names[name]; n > 1 {
		name = fmt.Sprintf("%s #%d", name, n)
	}
	p.made = append(p.made, mutation{
		name: name, tests: "./" + path.Dir(p.file), at: p.offset(old.Pos()),
		edits: []edit{{p.file, p.of(old), with}},
	})
}

// become makes mutants in which e is always true, never, or the opposite. It is evaluated
// all the same, so that what it uses is used.
func (p piece) become(e ast.Expr, to string, how ...string) {
	for _, what := range how {
		format := map[string]string{"always": "(%s) || true", "never": "(%s) && false", "negated": "!(%s)"}[what]
		p.add(e, fmt.Sprintf(format, p.of(e)), to, what)
	}
}

// condition makes it always true and never. One that is negated is caught by what catches
// these; so is a && b that is always true, and a || b that never is, by what catches that an
// operand is dropped.
func (p piece) condition(e ast.Expr, to string) {
	switch b, _ := e.(*ast.BinaryExpr); {
	case b != nil && b.Op == token.LAND:
		p.become(e, to, "never")
	case b != nil && b.Op == token.LOR:
		p.become(e, to, "always")
	default:
		p.become(e, to, "always", "never")
	}
}

func (p piece) cases(clauses []ast.Stmt) {
	for _, c := range clauses {
		for _, e := range c.(*ast.CaseClause).List {
			p.condition(e, p.of(e))
		}
	}
}

// opposite are the operators that take the place of others.
var opposite = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.ADD: token.SUB, token.SUB: token.ADD,
}

// operator puts another in the place of the operator. Of && and || it drops each operand:
// what catches that, catches the one in the place of the other as well.
func (p piece) operator(n *ast.BinaryExpr) {
	if n.Op == token.LAND || n.Op == token.LOR {
		p.drop(n)
		return
	}
	with, ok := opposite[n.Op]
	equality := n.Op == token.EQL || n.Op == token.NEQ
	if !ok || equality && p.isCondition() || n.Op == token.ADD && p.isText(n) {
		return
	}
	p.add(n, fmt.Sprintf("%s %s %s", p.of(n.X), with, p.of(n.Y)), p.of(n), fmt.Sprintf("%s is %s", n.Op, with))
}

// drop drops each operand of a chain once.
func (p piece) drop(n *ast.BinaryExpr) {
	p.add(n, p.of(n.X), p.of(n.Y), "dropped")
	if left, ok := n.X.(*ast.BinaryExpr); !ok || left.Op != n.Op {
		p.add(n, p.of(n.Y), p.of(n.X), "dropped")
	}
}

// isCondition reports whether the piece is a whole condition, or an operand of && or ||: that
// it is always true, never, or dropped, says as much as the opposite.
func (p piece) isCondition() bool {
	switch above := p.above.(type) {
	case *ast.IfStmt, *ast.CaseClause, *ast.ReturnStmt:
		return true
	case *ast.BinaryExpr:
		return above.Op == token.LAND || above.Op == token.LOR
	}
	return false
}

// isText reports whether texts are joined.
func (p piece) isText(n *ast.BinaryExpr) bool {
	text := false
	ast.Inspect(n, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		text = text || ok && lit.Kind == token.STRING
		_, call := n.(*ast.CallExpr)
		return !call
	})
	return text
}

// constant changes an integer by one.
func (p piece) constant(n *ast.BasicLit) {
	if n.Kind != token.INT {
		return
	}
	value, err := strconv.ParseInt(n.Value, 0, 64)
	if err != nil {
		return
	}
	other := value + 1
	if value == 1 {
		other = 0
	}
	p.add(n, strconv.FormatInt(other, 10), p.of(p.above), fmt.Sprintf("%s is %d", n.Value, other))
}

// returned flips what is true or false, and returns nothing in the place of all else, where
// the type says what that is.
func (p piece) returned(n *ast.ReturnStmt) {
	zeros := zerosOf(p.results)
	for i, r := range n.Results {
		switch text := p.of(r); {
		case text == "true":
			p.add(r, "false", p.of(n), "true is false")
		case text == "false":
			p.add(r, "true", p.of(n), "false is true")
		case len(zeros) != len(n.Results) || zeros[i] == "" || zeros[i] == text || isInteger(r):
		case zeros[i] == "false":
			p.condition(r, "return "+text)
		default:
			p.add(r, zeros[i], "return "+text, "returns "+zeros[i])
		}
	}
}

func isInteger(e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	return ok && lit.Kind == token.INT
}

// zerosOf is the zero value of each result; "" where the type does not say it.
func zerosOf(results *ast.FieldList) []string {
	if results == nil {
		return nil
	}
	var out []string
	for _, f := range results.List {
		for range max(1, len(f.Names)) {
			out = append(out, zeroOf(f.Type))
		}
	}
	return out
}

func zeroOf(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr, *ast.MapType, *ast.FuncType, *ast.ChanType, *ast.InterfaceType:
		return "nil"
	case *ast.ArrayType:
		if t.Len == nil {
			return "nil"
		}
	case *ast.SelectorExpr:
		if x, ok := t.X.(*ast.Ident); ok && x.Name == "time" && t.Sel.Name == "Duration" {
			return "0"
		}
	case *ast.Ident:
		return map[string]string{
			"error": "nil", "any": "nil", "string": `""`, "bool": "false",
			"int": "0", "int32": "0", "int64": "0", "uint32": "0", "uint64": "0", "float64": "0",
		}[t.Name]
	}
	return ""
}

// statements removes each assignment, call and increment.
func (p piece) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.AssignStmt:
			p.assignment(s)
		case *ast.ExprStmt:
			if !isLog(s) {
				p.add(s, "", p.of(s), "removed")
			}
		case *ast.IncDecStmt:
			p.add(s, "", p.of(s), "removed")
		}
	}
}

// logs reports whether a statement only logs. What an if statement does first is walked through.
func (p piece) logs(n ast.Node) bool {
	is, ok := n.(*ast.IfStmt)
	if !ok {
		s, ok := n.(ast.Stmt)
		return ok && isLog(s)
	}
	if is.Else != nil || len(is.Body.List) == 0 || slices.ContainsFunc(is.Body.List, func(s ast.Stmt) bool { return !isLog(s) }) {
		return false
	}
	if is.Init != nil {
		ast.Walk(p, is.Init)
	}
	return true
}

// isLog reports whether a line is logged, by a logger that controller-runtime has for it. What
// is logged decides nothing, so neither it nor a condition that guards nothing else has mutants.
func isLog(s ast.Stmt) bool {
	x, ok := s.(*ast.ExprStmt)
	if !ok {
		return false
	}
	for e := x.X; ; {
		switch x := e.(type) {
		case *ast.CallExpr:
			e = x.Fun
		case *ast.SelectorExpr:
			if x.Sel.Name == "LoggerFrom" {
				return true
			}
			e = x.X
		default:
			return false
		}
	}
}

// assignment removes it; of one with several on both sides, each alone. A variable that is
// declared has to be.
func (p piece) assignment(s *ast.AssignStmt) {
	switch {
	case s.Tok == token.DEFINE:
	case len(s.Lhs) == 1 || len(s.Lhs) != len(s.Rhs):
		p.add(s, "", p.of(s), "removed")
	default:
		for i := range s.Lhs {
			p.add(s, p.without(s.Lhs, i)+" = "+p.without(s.Rhs, i), p.of(s.Lhs[i])+" = "+p.of(s.Rhs[i]), "removed")
		}
	}
}

// without are the expressions but for one.
func (p piece) without(list []ast.Expr, i int) string {
	var out []string
	for j, e := range list {
		if j != i {
			out = append(out, p.of(e))
		}
	}
	return strings.Join(out, ", ")
}
