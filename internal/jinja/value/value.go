package value

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Values are nil, bool, int64, float64, string, *List, *Dict, *Namespace, Undefined and Opaque.
// Lists and mappings do not change, so several may share what is in them.

// List is a list, or a tuple.
type List struct {
	Items []any
	Tuple bool
}

// Dict is a mapping that knows the order of its keys, which are made by Key.
type Dict struct {
	Keys   []any
	Values map[any]any
}

// Namespace is what a template makes by namespace(): its attributes can be set.
type Namespace struct{ Attributes map[string]any }

// Undefined is what is not there; What says so in an error.
type Undefined struct{ What string }

// Opaque is a value that can only be passed on, such as a function.
type Opaque interface {
	// Kind is how it is called in errors.
	Kind() string
}

// Set sets the value of a key that Key has made.
func (d *Dict) Set(k, v any) {
	if _, there := d.Values[k]; !there {
		d.Keys = append(d.Keys, k)
	}
	d.Values[k] = v
}

// Get returns the value of a key.
func (m *Meter) Get(d *Dict, k any) (any, bool, error) {
	key, ok, err := m.Key(k)
	if !ok || err != nil {
		return nil, false, err
	}
	v, ok := d.Values[key]
	return v, ok, nil
}

// Key is the form of a value as a key: numbers that are equal are one key. False if it can be none.
func (m *Meter) Key(k any) (any, bool, error) {
	switch k := k.(type) {
	case string:
		return k, true, m.Scan(k)
	case nil, int64:
		return k, true, nil
	case bool:
		n, ok := Integer(k)
		return n, ok, nil
	case float64:
		if k == math.Trunc(k) && math.Abs(k) < 1<<53 {
			return int64(k), true, nil
		}
		return k, !math.IsNaN(k), nil
	}
	return nil, false, nil
}

// TypeName is how a value is called in errors.
func TypeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case bool:
		return "a boolean"
	case int64, float64:
		return "a number"
	case string:
		return "a string"
	case *List:
		if v.Tuple {
			return "a tuple"
		}
		return "a list"
	case *Dict:
		return "a mapping"
	case *Namespace:
		return "a namespace"
	case Opaque:
		return v.Kind()
	case Undefined:
		return "nothing: " + v.What
	}
	return fmt.Sprintf("%T", v)
}

// Truth is whether a value counts as true.
func Truth(v any) bool {
	switch v := v.(type) {
	case nil, Undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case *List:
		return len(v.Items) > 0
	case *Dict:
		return len(v.Keys) > 0
	}
	return true
}

// Text is a value as Python's str writes it.
func (m *Meter) Text(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, m.Scan(v)
	case Undefined:
		return "", nil // as in Jinja; what is printed is looked at before
	}
	return m.written(v)
}

// written is a value as Python's repr writes it.
func (m *Meter) written(v any) (string, error) {
	var out strings.Builder
	err := m.write(&out, v, 0)
	return out.String(), err
}

func (m *Meter) write(out *strings.Builder, v any, depth int) error {
	if err := m.Step(); err != nil {
		return err
	}
	if depth > MaxDepth {
		return errDeep
	}
	before := out.Len()
	switch v := v.(type) {
	case nil:
		out.WriteString("None")
	case bool:
		out.WriteString(map[bool]string{true: "True", false: "False"}[v])
	case int64:
		out.WriteString(strconv.FormatInt(v, 10))
	case float64:
		out.WriteString(floatText(v))
	case string:
		return m.spell(out, v, quote)
	case *List:
		return m.writeList(out, v, depth)
	case *Dict:
		return m.writeDict(out, v, depth)
	case Undefined:
		return errors.New(v.What)
	default:
		return fmt.Errorf("%s cannot be written", TypeName(v))
	}
	return m.Grow(out.Len() - before)
}

// spell writes a string by a function that makes it longer, if it changes it.
func (m *Meter) spell(out *strings.Builder, s string, by func(*strings.Builder, string)) error {
	if err := m.Grow(len(s)); err != nil {
		return err
	}
	before := out.Len()
	by(out, s)
	return m.Grow(out.Len() - before - len(s))
}

// between are the brackets, commas and colons of n elements.
func (m *Meter) between(n int) error { return m.Grow(2 + 4*n) }

func (m *Meter) writeList(out *strings.Builder, v *List, depth int) error {
	if err := m.between(len(v.Items)); err != nil {
		return err
	}
	brackets := "[]"
	if v.Tuple {
		brackets = "()"
	}
	out.WriteByte(brackets[0])
	for i, item := range v.Items {
		if i > 0 {
			out.WriteString(", ")
		}
		if err := m.write(out, item, depth+1); err != nil {
			return err
		}
	}
	if v.Tuple && len(v.Items) == 1 {
		out.WriteByte(',')
	}
	out.WriteByte(brackets[1])
	return nil
}

func (m *Meter) writeDict(out *strings.Builder, v *Dict, depth int) error {
	if err := m.between(len(v.Keys)); err != nil {
		return err
	}
	out.WriteByte('{')
	for i, k := range v.Keys {
		if i > 0 {
			out.WriteString(", ")
		}
		if err := m.write(out, k, depth+1); err != nil {
			return err
		}
		out.WriteString(": ")
		if err := m.write(out, v.Values[k], depth+1); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

// equal compares two values as Python's == does.
func (m *Meter) equal(a, b any, depth int) (bool, error) {
	if err := m.Step(); err != nil {
		return false, err
	}
	if depth > MaxDepth {
		return false, errDeep
	}
	if x, y, ok := floats(a, b); ok {
		if i, j, both := integers(a, b); both {
			return i == j, nil
		}
		return x == y, nil
	}
	switch a := a.(type) {
	case *List:
		b, ok := b.(*List)
		if !ok {
			return false, nil
		}
		return m.sameLists(a, b, depth+1)
	case *Dict:
		b, ok := b.(*Dict)
		if !ok {
			return false, nil
		}
		return m.sameDicts(a, b, depth+1)
	case Undefined:
		_, both := b.(Undefined)
		return both, nil
	case string:
		return a == b, m.Scan(a)
	case nil, *Namespace:
		return a == b, nil
	}
	return false, nil
}

func (m *Meter) sameLists(a, b *List, depth int) (bool, error) {
	if len(a.Items) != len(b.Items) || a.Tuple != b.Tuple {
		return false, nil
	}
	for i := range a.Items {
		if same, err := m.equal(a.Items[i], b.Items[i], depth); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (m *Meter) sameDicts(a, b *Dict, depth int) (bool, error) {
	if len(a.Keys) != len(b.Keys) {
		return false, nil
	}
	for _, k := range a.Keys {
		other, there, err := m.Get(b, k)
		if !there || err != nil {
			return false, err
		}
		if same, err := m.equal(a.Values[k], other, depth); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

// integers are two values as whole numbers.
func integers(a, b any) (x, y int64, ok bool) {
	x, one := Integer(a)
	y, two := Integer(b)
	return x, y, one && two
}

// Integer is a value as a whole number, of which a boolean is one; false if it is none.
func Integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// floats are two values as numbers.
func floats(a, b any) (x, y float64, ok bool) {
	x, one := Float(a)
	y, two := Float(b)
	return x, y, one && two
}

// Float is a value as a number; false if it is none.
func Float(v any) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	n, ok := Integer(v)
	return float64(n), ok
}
