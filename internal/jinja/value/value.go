package value

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Values are nil, bool, int64, float64, string, *List, *Dict, *Namespace, Undefined and Opaque.
// What is given is taken in as it is reached: a map is a *Dict of its sorted keys. Lists and
// mappings do not change.

// List is a list, or a tuple. Its elements are taken in by Take.
type List struct {
	Items []any
	Tuple bool
}

// Dict is a mapping that knows the order of its keys, which are Hashable.
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

// Take makes a value of what is given. Its elements are made when they are reached.
func Take(v any) any {
	switch v := v.(type) {
	case nil, bool, int64, float64, string, *List, *Dict, *Namespace, Undefined, Opaque:
		return v
	case int:
		return int64(v)
	case int32:
		return int64(v)
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		return &List{Items: v}
	case []string:
		out := &List{}
		for _, s := range v {
			out.Items = append(out.Items, s)
		}
		return out
	case map[string]string:
		out := &Dict{Values: map[any]any{}}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out.Set(k, v[k])
		}
		return out
	case map[string]any:
		out := &Dict{Values: map[any]any{}}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out.Set(k, v[k])
		}
		return out
	}
	return Undefined{fmt.Sprintf("a value of type %T cannot be used in a template", v)}
}

// Give makes what functions get of a value; nil, false if it has no such form.
func Give(v any) (any, bool) {
	switch v := v.(type) {
	case *List:
		out := make([]any, len(v.Items))
		for i := range v.Items {
			item, ok := Give(Take(v.Items[i]))
			if !ok {
				return nil, false
			}
			out[i] = item
		}
		return out, true
	case *Dict:
		out := map[string]any{}
		for _, k := range v.Keys {
			name, ok := k.(string)
			if !ok {
				return nil, false
			}
			if out[name], ok = Give(Take(v.Values[k])); !ok {
				return nil, false
			}
		}
		return out, true
	case *Namespace, Undefined, Opaque:
		return nil, false
	}
	return v, true
}

// Set sets the value of a key, which has to be Hashable.
func (d *Dict) Set(k, v any) {
	if _, there := d.Values[k]; !there {
		d.Keys = append(d.Keys, k)
	}
	d.Values[k] = v
}

// Get returns the value of a key that can be one.
func (d *Dict) Get(k any) (any, bool) {
	key, ok := Hashable(k)
	if !ok {
		return nil, false
	}
	v, ok := d.Values[key]
	return Take(v), ok
}

// Hashable is the form of a value as a key: numbers that are equal are one key.
func Hashable(k any) (any, bool) {
	switch k := k.(type) {
	case string, nil, int64:
		return k, true
	case bool:
		if k {
			return int64(1), true
		}
		return int64(0), true
	case float64:
		if k == math.Trunc(k) && math.Abs(k) < 1<<53 {
			return int64(k), true
		}
		return k, !math.IsNaN(k)
	}
	return nil, false
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
	var out strings.Builder
	if err := m.Write(&out, v, 0); err != nil {
		return "", err
	}
	return out.String(), m.Grow(out.Len())
}

// Write is a value as Python's repr writes it.
func (m *Meter) Write(out *strings.Builder, v any, depth int) error {
	if err := m.Step(); err != nil {
		return err
	}
	if depth > MaxDepth || out.Len() > MaxBytes {
		return errors.New("the value is too large to be written")
	}
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
		out.WriteString(quote(v))
	case *List:
		return m.writeList(out, v, depth)
	case *Dict:
		return m.writeDict(out, v, depth)
	case Undefined:
		return errors.New(v.What)
	default:
		return fmt.Errorf("%s cannot be written", TypeName(v))
	}
	return nil
}

func (m *Meter) writeList(out *strings.Builder, v *List, depth int) error {
	brackets := "[]"
	if v.Tuple {
		brackets = "()"
	}
	out.WriteByte(brackets[0])
	for i, item := range v.Items {
		if i > 0 {
			out.WriteString(", ")
		}
		if err := m.Write(out, Take(item), depth+1); err != nil {
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
	out.WriteByte('{')
	for i, k := range v.Keys {
		if i > 0 {
			out.WriteString(", ")
		}
		if err := m.Write(out, k, depth+1); err != nil {
			return err
		}
		out.WriteString(": ")
		if err := m.Write(out, Take(v.Values[k]), depth+1); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

// Equal compares two values as Python's == does.
func (m *Meter) Equal(a, b any, depth int) (bool, error) {
	if err := m.Step(); err != nil || depth > MaxDepth {
		return false, err
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
		if same, err := m.Equal(Take(a.Items[i]), Take(b.Items[i]), depth); !same || err != nil {
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
		other, there := b.Values[k]
		if !there {
			return false, nil
		}
		if same, err := m.Equal(Take(a.Values[k]), Take(other), depth); !same || err != nil {
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
