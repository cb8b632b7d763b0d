package jinja

import (
	"fmt"

	"github.com/moor-storage/moor/internal/jinja/value"
)

// expression has a value.
type expression interface {
	eval(r *run, f *frame) (any, error)
}

type constant struct{ value any }

func (c constant) eval(*run, *frame) (any, error) { return c.value, nil }

type name struct {
	name string
	line int
}

func (n name) eval(r *run, f *frame) (any, error) {
	if err := r.at(n.line, r.Step()); err != nil {
		return nil, err
	}
	if v, ok := f.get(n.name); ok {
		return v, nil
	}
	if v, ok := r.given[n.name]; ok {
		return value.Take(v), nil
	}
	if function, ok := r.functions[n.name]; ok {
		return outside(n.name, function), nil
	}
	if g, ok := globals[n.name]; ok {
		return callable{n.name, g}, nil
	}
	return value.Undefined{What: fmt.Sprintf("'%s' is undefined", n.name)}, nil
}

type sequence struct {
	items []expression
	tuple bool
	line  int
}

func (s sequence) eval(r *run, f *frame) (any, error) {
	out := &value.List{Tuple: s.tuple, Items: make([]any, len(s.items))}
	for i, e := range s.items {
		var err error
		if out.Items[i], err = e.eval(r, f); err != nil {
			return nil, err
		}
	}
	return out, r.at(s.line, r.Pay(len(s.items)))
}

type mapping struct {
	keys, values []expression
	line         int
}

func (m mapping) eval(r *run, f *frame) (any, error) {
	out := &value.Dict{Values: map[any]any{}}
	for i := range m.keys {
		k, err := m.keys[i].eval(r, f)
		if err != nil {
			return nil, err
		}
		key, ok := value.Hashable(k)
		if !ok {
			return nil, fail(m.line, "%s cannot be a key", value.TypeName(k))
		}
		v, err := m.values[i].eval(r, f)
		if err != nil {
			return nil, err
		}
		out.Set(key, v)
	}
	return out, r.at(m.line, r.Pay(len(m.keys)))
}

type choice struct {
	test, then, otherwise expression
	line                  int
}

func (c choice) eval(r *run, f *frame) (any, error) {
	v, err := c.test.eval(r, f)
	switch {
	case err != nil:
		return nil, err
	case value.Truth(v):
		return c.then.eval(r, f)
	case c.otherwise != nil:
		return c.otherwise.eval(r, f)
	}
	return value.Undefined{What: "the condition is false, and there is no else"}, nil
}

type logical struct {
	left, right expression
	and         bool
}

func (l logical) eval(r *run, f *frame) (any, error) {
	v, err := l.left.eval(r, f)
	if err != nil || value.Truth(v) != l.and {
		return v, err
	}
	return l.right.eval(r, f)
}

type negation struct{ of expression }

func (n negation) eval(r *run, f *frame) (any, error) {
	v, err := n.of.eval(r, f)
	return !value.Truth(v), err
}

type comparison struct {
	first     expression
	operators []string
	rest      []expression
	line      int
}

func (c comparison) eval(r *run, f *frame) (any, error) {
	left, err := c.first.eval(r, f)
	if err != nil {
		return nil, err
	}
	for i, operator := range c.operators {
		right, err := c.rest[i].eval(r, f)
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
	if err := r.at(b.line, r.Step()); err != nil {
		return nil, err
	}
	left, err := b.left.eval(r, f)
	if err != nil {
		return nil, err
	}
	right, err := b.right.eval(r, f)
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
	v, err := u.of.eval(r, f)
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
	if err := r.at(a.line, r.Step()); err != nil {
		return nil, err
	}
	of, err := a.of.eval(r, f)
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
		if v, ok := of.Get(name); ok {
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
	return value.Undefined{What: fmt.Sprintf("%s has no attribute '%s'", value.TypeName(of), name)}, nil
}

type subscript struct {
	of, index expression
	line      int
}

func (s subscript) eval(r *run, f *frame) (any, error) {
	if err := r.at(s.line, r.Step()); err != nil {
		return nil, err
	}
	of, err := s.of.eval(r, f)
	if err != nil {
		return nil, err
	}
	index, err := s.index.eval(r, f)
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
		return r.attribute(of, name, line)
	}
	shown, err := r.Text(index)
	if err != nil {
		return nil, r.at(line, err)
	}
	return value.Undefined{What: fmt.Sprintf("%s has no element %s", value.TypeName(of), shown)}, nil
}

type cut struct {
	of     expression
	bounds [3]expression
	line   int
}

func (c cut) eval(r *run, f *frame) (any, error) {
	of, err := c.of.eval(r, f)
	if err != nil {
		return nil, err
	}
	var bounds [3]*int64
	for i, b := range c.bounds {
		if b == nil {
			continue
		}
		v, err := b.eval(r, f)
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
