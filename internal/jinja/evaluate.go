package jinja

import (
	"fmt"

	"github.com/moor-storage/moor/internal/jinja/value"
)

// expression has a value. It is evaluated by run.eval.
type expression interface {
	eval(r *run, f *frame) (any, error)
}

// eval evaluates an expression. It counts that before it does: so the stack cannot grow further than
// steps last, however deep expressions nest.
func (r *run) eval(e expression, f *frame) (any, error) {
	if err := r.Step(); err != nil {
		return nil, err
	}
	return e.eval(r, f)
}

type constant struct{ value any }

func (c constant) eval(*run, *frame) (any, error) { return c.value, nil }

type name struct{ name string }

func (n name) eval(r *run, f *frame) (any, error) {
	if v, ok := f.get(n.name); ok {
		return v, nil
	}
	if v, ok, err := r.variable(n.name); ok || err != nil {
		return v, err
	}
	if function, ok := r.functions[n.name]; ok {
		return outside(n.name, function), nil
	}
	if g, ok := globals[n.name]; ok {
		return callable{n.name, g}, nil
	}
	return value.Undefined{What: fmt.Sprintf("'%s' is undefined", n.name)}, nil
}

// variable is one that was given; it is made a value once.
func (r *run) variable(name string) (any, bool, error) {
	if v, ok := r.taken[name]; ok {
		return v, true, nil
	}
	given, ok := r.given[name]
	if !ok {
		return nil, false, nil
	}
	v, err := r.Take(given)
	if err != nil {
		return nil, false, err
	}
	r.taken[name] = v
	return v, true, nil
}

type sequence struct {
	items []expression
	tuple bool
}

func (s sequence) eval(r *run, f *frame) (any, error) {
	out := &value.List{Tuple: s.tuple, Items: make([]any, len(s.items))}
	for i, e := range s.items {
		var err error
		if out.Items[i], err = r.eval(e, f); err != nil {
			return nil, err
		}
	}
	return out, nil
}

type mapping struct {
	keys, values []expression
	line         int
}

func (m mapping) eval(r *run, f *frame) (any, error) {
	out := &value.Dict{Values: map[any]any{}}
	for i := range m.keys {
		k, err := r.eval(m.keys[i], f)
		if err != nil {
			return nil, err
		}
		key, ok, err := r.Key(k)
		if err != nil {
			return nil, r.at(m.line, err)
		}
		if !ok {
			return nil, fail(m.line, "%s cannot be a key", value.TypeName(k))
		}
		v, err := r.eval(m.values[i], f)
		if err != nil {
			return nil, err
		}
		out.Set(key, v)
	}
	return out, nil
}

type choice struct{ test, then, otherwise expression }

func (c choice) eval(r *run, f *frame) (any, error) {
	v, err := r.eval(c.test, f)
	switch {
	case err != nil:
		return nil, err
	case value.Truth(v):
		return r.eval(c.then, f)
	case c.otherwise != nil:
		return r.eval(c.otherwise, f)
	}
	return value.Undefined{What: "the condition is false, and there is no else"}, nil
}

type logical struct {
	left, right expression
	and         bool
}

func (l logical) eval(r *run, f *frame) (any, error) {
	v, err := r.eval(l.left, f)
	if err != nil || value.Truth(v) != l.and {
		return v, err
	}
	return r.eval(l.right, f)
}

type negation struct{ of expression }

func (n negation) eval(r *run, f *frame) (any, error) {
	v, err := r.eval(n.of, f)
	return !value.Truth(v), err
}

type comparison struct {
	first     expression
	operators []string
	rest      []expression
	line      int
}

func (c comparison) eval(r *run, f *frame) (any, error) {
	left, err := r.eval(c.first, f)
	if err != nil {
		return nil, err
	}
	for i, operator := range c.operators {
		right, err := r.eval(c.rest[i], f)
		if err != nil {
			return nil, err
		}
		ok, err := r.Compare(operator, left, right)
		if !ok || err != nil {
			return false, r.at(c.line, err)
		}
		left = right
	}
	return true, nil
}

type binary struct {
	operator    string
	left, right expression
	line        int
}

func (b binary) eval(r *run, f *frame) (any, error) {
	left, err := r.eval(b.left, f)
	if err != nil {
		return nil, err
	}
	right, err := r.eval(b.right, f)
	if err != nil {
		return nil, err
	}
	out, err := r.Operate(b.operator, left, right)
	return out, r.at(b.line, err)
}

type unary struct {
	operator string
	of       expression
	line     int
}

func (u unary) eval(r *run, f *frame) (any, error) {
	v, err := r.eval(u.of, f)
	if err != nil {
		return nil, err
	}
	out, err := r.Operate(u.operator, int64(0), v)
	return out, r.at(u.line, err)
}

type attribute struct {
	of   expression
	name string
	line int
}

func (a attribute) eval(r *run, f *frame) (any, error) {
	of, err := r.eval(a.of, f)
	if err != nil {
		return nil, err
	}
	return r.attribute(of, a.name, a.line)
}

// attribute is the method of that name, or else the element of that key.
func (r *run) attribute(of any, name string, line int) (any, error) {
	if u, ok := of.(value.Undefined); ok {
		return nil, fail(line, "%s", u.What)
	}
	if m := method(of, name); m != nil {
		return callable{name, m}, nil
	}
	switch of := of.(type) {
	case *value.Dict:
		if v, ok := of.Values[name]; ok {
			return v, nil
		}
	case *value.Namespace:
		if v, ok := of.Attributes[name]; ok {
			return v, nil
		}
	case state:
		if v, ok := of.attribute(name); ok {
			return v, nil
		}
	}
	return value.Undefined{What: fmt.Sprintf("%s has no attribute '%s'", value.TypeName(of), value.Short(name))}, nil
}

type subscript struct {
	of, index expression
	line      int
}

func (s subscript) eval(r *run, f *frame) (any, error) {
	of, err := r.eval(s.of, f)
	if err != nil {
		return nil, err
	}
	index, err := r.eval(s.index, f)
	if err != nil {
		return nil, err
	}
	return r.item(of, index, s.line)
}

// item is an element, or else the attribute that the index names.
func (r *run) item(of, index any, line int) (any, error) {
	for _, v := range []any{index, of} {
		if u, ok := v.(value.Undefined); ok {
			return nil, fail(line, "%s", u.What)
		}
	}
	v, ok, err := r.Element(of, index)
	if ok || err != nil {
		return v, r.at(line, err)
	}
	if name, ok := index.(string); ok {
		if err := r.Scan(name); err != nil {
			return nil, r.at(line, err)
		}
		return r.attribute(of, name, line)
	}
	shown, err := r.Text(index)
	if err != nil {
		return nil, r.at(line, err)
	}
	return value.Undefined{What: fmt.Sprintf("%s has no element %s", value.TypeName(of), value.Short(shown))}, nil
}

type cut struct {
	of     expression
	bounds [3]expression
	line   int
}

func (c cut) eval(r *run, f *frame) (any, error) {
	of, err := r.eval(c.of, f)
	if err != nil {
		return nil, err
	}
	var bounds [3]*int64
	for i, b := range c.bounds {
		if b == nil {
			continue
		}
		v, err := r.eval(b, f)
		if err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		n, ok := value.Integer(v)
		if !ok {
			return nil, fail(c.line, "a slice needs whole numbers, and this is %s", value.TypeName(v))
		}
		bounds[i] = &n
	}
	out, err := r.Slice(of, bounds)
	return out, r.at(c.line, err)
}
