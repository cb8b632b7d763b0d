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
		v, err := r.eval(e, f)
		if err != nil {
			return out, err
		}
		out.positional = append(out.positional, v)
	}
	for _, e := range a.named {
		v, err := r.eval(e, f)
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
	v, err := r.eval(c.function, f)
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
	return out, nil
}

type filter struct {
	of        expression
	name      string
	arguments arguments
	apply     filterFunction
	line      int
}

func (a *filter) eval(r *run, f *frame) (any, error) {
	v, err := r.eval(a.of, f)
	if err != nil {
		return nil, err
	}
	return a.on(r, f, v)
}

func (a *filter) on(r *run, f *frame, v any) (any, error) {
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
	v, err := r.eval(t.of, f)
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

// outsideSteps is what a call of a function that was given counts: it may look things up.
const outsideSteps = 500

// outside is a function that was given to the rendering.
func outside(name string, function Function) callable {
	return callable{name, func(r *run, a values) (any, error) {
		if err := r.Pay(outsideSteps); err != nil {
			return nil, err
		}
		positional, named := make([]any, len(a.positional)), map[string]any{}
		var err error
		for i, v := range a.positional {
			if positional[i], err = r.passed(v); err != nil {
				return nil, err
			}
		}
		for i, n := range a.names {
			if named[n], err = r.passed(a.named[i]); err != nil {
				return nil, err
			}
		}
		out, err := function(r.ctx, positional, named)
		if err != nil {
			return nil, err
		}
		return r.Take(out)
	}}
}

// passed is an argument as a function gets it.
func (r *run) passed(v any) (any, error) {
	out, ok, err := r.Give(v)
	if err == nil && !ok {
		err = errors.New("an argument is not defined, or none that can be passed on")
	}
	return out, err
}

// deeper bounds how deep macros and filters call one another; what it returns undoes it.
func (r *run) deeper() (func(), error) {
	if r.depth++; r.depth > MaxDepth {
		return nil, fmt.Errorf("macros and filters call one another deeper than %d", MaxDepth)
	}
	return func() { r.depth-- }, nil
}

type macro struct {
	name      string
	arguments []string
	defaults  []expression
	body      []placed
}

func (m *macro) do(_ *run, f *frame) error {
	f.set(m.name, callable{m.name, func(r *run, a values) (any, error) { return m.call(r, f, a) }})
	return nil
}

// call is a call of a macro that was defined within a frame.
func (m *macro) call(r *run, f *frame, a values) (any, error) {
	up, err := r.deeper()
	if err != nil {
		return nil, err
	}
	defer up()
	// Each argument is looked for among those with names.
	if err := r.Pay(len(m.arguments) * (1 + len(a.names)/8)); err != nil {
		return nil, err
	}
	given, err := a.bind(m.arguments...)
	if err != nil {
		return nil, err
	}
	inner := &frame{above: f}
	for i, name := range m.arguments {
		switch {
		case given[i] != nil || a.has(i, name):
		case m.defaults[i] != nil:
			if given[i], err = r.eval(m.defaults[i], inner); err != nil {
				return nil, err
			}
		default:
			given[i] = value.Undefined{What: fmt.Sprintf("argument '%s' of macro '%s' is not given", name, m.name)}
		}
		inner.set(name, given[i])
	}
	return r.captured(m.body, inner)
}

// arguments reads those of a call, with the brackets.
func (p *parser) arguments() (arguments, error) {
	out := arguments{}
	if err := p.wants("("); err != nil {
		return out, err
	}
	there := map[string]bool{}
	for !p.takes(")") {
		named := ""
		if p.now().kind == tokenName && p.tokens[p.at+1].kind == tokenOperator && p.tokens[p.at+1].text == "=" {
			named = p.next().text
			p.next()
			if there[named] {
				return out, fail(p.now().line, "argument '%s' is there twice", named)
			}
			there[named] = true
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
		return nil, fail(line, "no filter named '%s'", value.Short(name))
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
		return nil, fail(line, "no test named '%s'", value.Short(name))
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
		err := r.Step()
		if err == nil {
			v, err = one.on(r, f, v)
		}
		if err != nil {
			return nil, err
		}
	}
	return v, nil
}
