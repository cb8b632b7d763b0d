package jinja

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/moor-storage/moor/internal/jinja/value"
)

// Function is what a template can call. Its arguments are nil, bool, int64, float64, string,
// []any and map[string]any, and so is its result. An error ends the rendering.
type Function func(ctx context.Context, positional []any, named map[string]any) (any, error)

// Result is what a template has become.
type Result struct {
	Text string
	// Variables are those that were set at the level of the template itself, and are booleans,
	// numbers, strings, or nil.
	Variables map[string]any
}

// Render evaluates the template. Variables are nil, booleans, numbers, strings, json.Number,
// []any, []string, map[string]any and map[string]string of such; they are not changed. The
// error is an *Error, or that of ctx.
func (t *Template) Render(ctx context.Context, variables map[string]any, functions map[string]Function) (Result, error) {
	r := &run{Meter: value.NewMeter(ctx), ctx: ctx, functions: functions, given: variables, taken: map[string]any{}}
	top := &frame{}
	if err := r.all(t.body, top); err != nil {
		return Result{}, err
	}
	out := Result{Text: r.out.String(), Variables: map[string]any{}}
	for k, v := range top.names {
		switch v.(type) {
		case nil, bool, int64, float64, string:
			out.Variables[k] = v
		}
	}
	return out, nil
}

// run is one rendering.
type run struct {
	*value.Meter
	ctx       context.Context
	functions map[string]Function
	given     map[string]any
	// taken are the variables given that were named, as values.
	taken map[string]any
	out   strings.Builder
	// depth is of macros and filters that are being called.
	depth int
}

// at gives an error the line where it happened, if it has none. Line 0 is of what an expression is
// evaluated for more than once, such as the elements of a list.
func (r *run) at(line int, err error) error {
	var already *Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &already):
		return &Error{Line: line, Cause: err}
	case already.Line == 0:
		already.Line = line
	}
	return err
}

// in says in which function, filter or test an error happened, and in which line, if it does not
// say that already.
func (r *run) in(what, name string, line int, err error) error {
	var already *Error
	if !errors.As(err, &already) {
		err = fmt.Errorf("%s %s: %w", what, name, err)
	}
	return r.at(line, err)
}

// frame is one scope of names.
type frame struct {
	above *frame
	names map[string]any
}

func (f *frame) set(name string, v any) {
	if f.names == nil {
		f.names = map[string]any{}
	}
	f.names[name] = v
}

func (f *frame) get(name string) (any, bool) {
	for ; f != nil; f = f.above {
		if v, ok := f.names[name]; ok {
			return v, true
		}
	}
	return nil, false
}

// statement does something; text and output write. Its errors get the line where it begins, if they
// have none.
type statement interface {
	do(r *run, f *frame) error
}

// placed is a statement, and where it begins.
type placed struct {
	statement
	line int
}

func (r *run) all(body []placed, f *frame) error {
	for _, s := range body {
		err := r.Step()
		if err == nil {
			err = s.do(r, f)
		}
		if err != nil {
			return r.at(s.line, err)
		}
	}
	return nil
}

// captured is the text that a body writes.
func (r *run) captured(body []placed, f *frame) (string, error) {
	outer := r.out
	r.out = strings.Builder{}
	err := r.all(body, f)
	inner := r.out.String()
	r.out = outer
	return inner, err
}

type text string

func (t text) do(r *run, _ *frame) error {
	if err := r.Grow(len(t)); err != nil {
		return err
	}
	r.out.WriteString(string(t))
	return nil
}

// output writes the value of an expression, which has to be a string or a number: lists, mappings,
// none and what is not defined are mistakes where text is made for a field.
type output struct{ value expression }

func (o output) do(r *run, f *frame) error {
	v, err := r.eval(o.value, f)
	if err != nil {
		return err
	}
	switch v := v.(type) {
	case string, bool, int64, float64:
		s, err := r.Text(v)
		if err != nil {
			return err
		}
		if err := r.Grow(len(s)); err != nil {
			return err
		}
		r.out.WriteString(s)
		return nil
	case value.Undefined:
		return errors.New(v.What)
	}
	return fmt.Errorf("an expression has to be a string or a number, and this is %s: use the filter tojson", value.TypeName(v))
}

// condition does the first of its branches whose test is true.
type condition struct {
	branches  []branch
	otherwise []placed
}

type branch struct {
	test expression
	body []placed
}

func (c condition) do(r *run, f *frame) error {
	for _, b := range c.branches {
		v, err := r.eval(b.test, f)
		if err != nil {
			return err
		}
		if value.Truth(v) {
			return r.all(b.body, f)
		}
	}
	return r.all(c.otherwise, f)
}

type loop struct {
	target          []string
	over, filter    expression
	body, otherwise []placed
}

func (l loop) do(r *run, f *frame) error {
	over, err := r.eval(l.over, f)
	if err != nil {
		return err
	}
	items, err := r.Iterate(over)
	if err != nil {
		return err
	}
	if l.filter != nil {
		if items, err = l.filtered(r, f, items); err != nil {
			return err
		}
	}
	if len(items) == 0 {
		return r.all(l.otherwise, &frame{above: f})
	}
	for i, item := range items {
		if err := r.Step(); err != nil {
			return err
		}
		inner := &frame{above: f}
		inner.set("loop", state{items, i})
		if err := r.bind(inner, l.target, item); err != nil {
			return err
		}
		if err := r.all(l.body, inner); err != nil {
			return err
		}
	}
	return nil
}

func (l loop) filtered(r *run, f *frame, items []any) ([]any, error) {
	var out []any
	for _, item := range items {
		inner := &frame{above: f}
		if err := r.bind(inner, l.target, item); err != nil {
			return nil, err
		}
		v, err := r.eval(l.filter, inner)
		if err != nil {
			return nil, err
		}
		if value.Truth(v) {
			out = append(out, item)
		}
	}
	return out, nil
}

// state is the variable loop at an element.
type state struct {
	items []any
	at    int
}

// Kind is what it is called in errors.
func (state) Kind() string { return "the variable loop" }

// attribute is what a template can ask of it.
func (s state) attribute(name string) (any, bool) {
	i, n := int64(s.at), int64(len(s.items))
	switch name {
	case "index":
		return i + 1, true
	case "index0":
		return i, true
	case "revindex":
		return n - i, true
	case "revindex0":
		return n - i - 1, true
	case "first":
		return i == 0, true
	case "last":
		return i == n-1, true
	case "length":
		return n, true
	case "previtem":
		if i > 0 {
			return s.items[i-1], true
		}
	case "nextitem":
		if i < n-1 {
			return s.items[i+1], true
		}
	}
	return nil, false
}

// bind gives a value to one name, or its elements to several.
func (r *run) bind(f *frame, target []string, v any) error {
	if len(target) == 1 {
		f.set(target[0], v)
		return nil
	}
	l, ok := v.(*value.List)
	if !ok || len(l.Items) != len(target) {
		return fmt.Errorf("%s cannot be given to %d names", value.TypeName(v), len(target))
	}
	for i, name := range target {
		f.set(name, l.Items[i])
	}
	return r.Pay(len(target))
}

type set struct {
	target    []string
	attribute string
	value     expression
	filters   []*filter
	body      []placed
}

func (s set) do(r *run, f *frame) error {
	var v any
	var err error
	if s.value != nil {
		v, err = r.eval(s.value, f)
	} else if v, err = r.captured(s.body, &frame{above: f}); err == nil {
		v, err = through(r, f, s.filters, v)
	}
	if err != nil {
		return err
	}
	if s.attribute == "" {
		return r.bind(f, s.target, v)
	}
	of, _ := f.get(s.target[0])
	n, ok := of.(*value.Namespace)
	if !ok {
		return fmt.Errorf("only attributes of a namespace() can be set, and '%s' is none", s.target[0])
	}
	n.Attributes[s.attribute] = v
	return nil
}

type with struct {
	names  []string
	values []expression
	body   []placed
}

func (w with) do(r *run, f *frame) error {
	inner := &frame{above: f}
	for i, name := range w.names {
		v, err := r.eval(w.values[i], f)
		if err != nil {
			return err
		}
		inner.set(name, v)
	}
	return r.all(w.body, inner)
}

type filterBlock struct {
	filters []*filter
	body    []placed
}

func (b filterBlock) do(r *run, f *frame) error {
	var v any
	v, err := r.captured(b.body, &frame{above: f})
	if err == nil {
		v, err = through(r, f, b.filters, v)
	}
	if err != nil {
		return err
	}
	return output{constant{v}}.do(r, f)
}
