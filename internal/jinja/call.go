package jinja

import (
	"errors"
	"fmt"
	"slices"

	"github.com/moor-storage/moor/internal/jinja/value"
)

// arguments are those of a call, and values what they are.
type arguments struct {
	positional, named []expression
	names             []string
}

type values struct {
	positional, named []any
	names             []string
}

func (a arguments) eval(r *run, f *frame) (values, error) {
	out := values{names: a.names}
	for _, e := range a.positional {
		v, err := e.eval(r, f)
		if err != nil {
			return out, err
		}
		out.positional = append(out.positional, v)
	}
	for _, e := range a.named {
		v, err := e.eval(r, f)
		if err != nil {
			return out, err
		}
		out.named = append(out.named, v)
	}
	return out, nil
}

// bind sorts arguments by the names that a function has for them; nil where one is missing.
func (a values) bind(names ...string) ([]any, error) {
	if len(a.positional) > len(names) {
		return nil, fmt.Errorf("%d arguments at most, and there are %d", len(names), len(a.positional))
	}
	out := make([]any, len(names))
	copy(out, a.positional)
	for i, n := range a.names {
		at := slices.Index(names, n)
		if at < 0 || at < len(a.positional) {
			return nil, fmt.Errorf("there is no argument '%s', or it is there twice", n)
		}
		out[at] = a.named[i]
	}
	return out, nil
}

// has reports whether an argument was given, by its place or its name.
func (a values) has(i int, name string) bool {
	return i < len(a.positional) || slices.Contains(a.names, name)
}

type call struct {
	function  expression
	arguments arguments
	line      int
}

func (c call) eval(r *run, f *frame) (any, error) {
	if err := r.at(c.line, r.Step()); err != nil {
		return nil, err
	}
	v, err := c.function.eval(r, f)
	if err != nil {
		return nil, err
	}
	function, ok := v.(callable)
	if !ok {
		if u, not := v.(value.Undefined); not {
			return nil, fail(c.line, "%s", u.What)
		}
		return nil, fail(c.line, "%s cannot be called", value.TypeName(v))
	}
	a, err := c.arguments.eval(r, f)
	if err != nil {
		return nil, err
	}
	out, err := function.call(r, a)
	if err != nil {
		return nil, r.in("call of", function.name, c.line, err)
	}
	return value.Take(out), nil
}

type filter struct {
	of        expression
	name      string
	arguments arguments
	apply     filterFunction
	line      int
}

func (a *filter) eval(r *run, f *frame) (any, error) {
	v, err := a.of.eval(r, f)
	if err != nil {
		return nil, err
	}
	return a.on(r, f, v)
}

func (a *filter) on(r *run, f *frame, v any) (any, error) {
	if err := r.at(a.line, r.Step()); err != nil {
		return nil, err
	}
	given, err := a.arguments.eval(r, f)
	if err != nil {
		return nil, err
	}
	return r.filter(a.name, a.apply, v, given, a.line)
}

// filter applies one.
func (r *run) filter(name string, apply filterFunction, v any, a values, line int) (any, error) {
	out, err := apply(r, v, a)
	if err != nil {
		return nil, r.in("filter", name, line, err)
	}
	return out, nil
}

type test struct {
	of        expression
	name      string
	not       bool
	arguments arguments
	check     testFunction
	line      int
}

func (t test) eval(r *run, f *frame) (any, error) {
	if err := r.at(t.line, r.Step()); err != nil {
		return nil, err
	}
	v, err := t.of.eval(r, f)
	if err != nil {
		return nil, err
	}
	given, err := t.arguments.eval(r, f)
	if err != nil {
		return nil, err
	}
	ok, err := t.check(r, v, given)
	if err != nil {
		return nil, r.in("test", t.name, t.line, err)
	}
	return ok != t.not, nil
}

// callable is a function, a method or a macro.
type callable struct {
	name string
	call func(r *run, a values) (any, error)
}

// Kind is what it is called in errors.
func (callable) Kind() string { return "a function" }

// outside is a function that was given to the rendering.
func outside(name string, function Function) callable {
	return callable{name, func(r *run, a values) (any, error) {
		positional, ok := value.Give(&value.List{Items: a.positional})
		named := map[string]any{}
		for i, n := range a.names {
			var good bool
			named[n], good = value.Give(a.named[i])
			ok = ok && good
		}
		if !ok {
			return nil, errors.New("an argument is not defined, or none that can be passed on")
		}
		return function(r.ctx, positional.([]any), named)
	}}
}

// arguments reads those of a call, with the brackets.
func (p *parser) arguments() (arguments, error) {
	out := arguments{}
	if err := p.wants("("); err != nil {
		return out, err
	}
	for !p.takes(")") {
		named := ""
		if p.now().kind == tokenName && p.tokens[p.at+1].kind == tokenOperator && p.tokens[p.at+1].text == "=" {
			named = p.next().text
			p.next()
		} else if len(out.named) > 0 {
			return out, fail(p.now().line, "an argument without a name follows one with a name")
		}
		e, err := p.expression()
		if err != nil {
			return out, err
		}
		if named == "" {
			out.positional = append(out.positional, e)
		} else {
			out.names, out.named = append(out.names, named), append(out.named, e)
		}
		if !p.sees(")") {
			if err := p.wants(","); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// filtered reads filters and tests.
func (p *parser) filtered(e expression) (expression, error) {
	for {
		switch {
		case p.takes("|"):
			f, err := p.filter(e)
			if err != nil {
				return nil, err
			}
			e = f
		case p.takesWord("is"):
			t, err := p.test(e)
			if err != nil {
				return nil, err
			}
			e = t
		default:
			return e, nil
		}
	}
}

// filter reads one that is applied to an expression; nil: to the text of a block.
func (p *parser) filter(of expression) (*filter, error) {
	name, line, err := p.dotted()
	if err != nil {
		return nil, err
	}
	out := &filter{of: of, name: name, line: line, apply: filters[name]}
	if out.apply == nil {
		return nil, fail(line, "no filter named '%s'", name)
	}
	if p.sees("(") {
		out.arguments, err = p.arguments()
	}
	return out, err
}

// test reads one, with its argument, which needs no brackets.
func (p *parser) test(of expression) (expression, error) {
	not := p.takesWord("not")
	name, line, err := p.dotted()
	if err != nil {
		return nil, err
	}
	out := test{of: of, name: name, not: not, line: line, check: tests[name]}
	if out.check == nil {
		return nil, fail(line, "no test named '%s'", name)
	}
	switch t := p.now(); {
	case p.sees("("):
		out.arguments, err = p.arguments()
	case t.kind == tokenString, t.kind == tokenInteger, t.kind == tokenFloat, p.sees("["), p.sees("{"),
		t.kind == tokenName && !map[string]bool{"else": true, "or": true, "and": true, "is": true, "in": true, "if": true, "not": true}[t.text]:
		var e expression
		if e, err = p.primary(); err == nil {
			e, err = p.postfix(e)
		}
		out.arguments.positional = []expression{e}
	}
	return out, err
}

// through applies filters to a value.
func through(r *run, f *frame, filters []*filter, v any) (any, error) {
	for _, one := range filters {
		var err error
		if v, err = one.on(r, f, v); err != nil {
			return nil, err
		}
	}
	return v, nil
}
