package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moor-storage/moor/internal/jinja/value"
)

func first(r *run, v any, _ values) (any, error) {
	all, err := r.Iterate(v)
	if err != nil || len(all) == 0 {
		return value.Undefined{What: "there is no first element, it is empty"}, err
	}
	return all[0], nil
}

func last(r *run, v any, _ values) (any, error) {
	all, err := r.Iterate(v)
	if err != nil || len(all) == 0 {
		return value.Undefined{What: "there is no last element, it is empty"}, err
	}
	return all[len(all)-1], nil
}

func join(r *run, v any, a values) (any, error) {
	given, err := a.bind("d", "attribute")
	if err != nil {
		return nil, err
	}
	between := ""
	if given[0] != nil {
		if between, err = r.Text(given[0]); err != nil {
			return nil, err
		}
	}
	all, err := r.Iterate(v)
	if err != nil {
		return nil, err
	}
	parts := make([]string, len(all))
	for i, item := range all {
		if item, err = r.path(item, given[1]); err != nil {
			return nil, err
		}
		if parts[i], err = r.Text(item); err != nil {
			return nil, err
		}
		if err := r.Grow(len(parts[i]) + len(between)); err != nil {
			return nil, err
		}
	}
	return strings.Join(parts, between), nil
}

func toList(r *run, v any, _ values) (any, error) {
	all, err := r.Iterate(v)
	return &value.List{Items: all}, err
}

func reverse(r *run, v any, _ values) (any, error) {
	all, err := r.Iterate(v)
	if err != nil {
		return nil, err
	}
	all = slices.Clone(all)
	slices.Reverse(all)
	s, ok := v.(string)
	if !ok {
		return &value.List{Items: all}, nil
	}
	var out strings.Builder
	for _, c := range all {
		out.WriteString(c.(string))
	}
	return out.String(), r.Grow(len(s))
}

// path is the attribute of an element that a filter speaks of: a name with dots, or a place; nil is
// the element itself.
func (r *run) path(v, attribute any) (any, error) {
	switch attribute := attribute.(type) {
	case nil:
		return v, nil
	case string:
		if err := r.Scan(attribute); err != nil {
			return nil, err
		}
		for name := range strings.SplitSeq(attribute, ".") {
			err := r.Step()
			if err == nil {
				v, err = r.item(v, name, 0)
			}
			if err != nil {
				return nil, err
			}
		}
		return v, nil
	}
	return r.item(v, attribute, 0)
}

// key is what elements are compared by: an attribute of each, or each itself, without the difference of
// cases unless that counts.
func (r *run) key(attribute, sensitive any) func(any) (any, error) {
	return func(item any) (any, error) {
		v, err := r.path(item, attribute)
		if err != nil || value.Truth(sensitive) {
			return v, err
		}
		return r.Folded(v)
	}
}

// ordered sorts elements by what by makes of each.
func ordered(r *run, all []any, by func(any) (any, error), reversed bool) ([]any, error) {
	type keyed struct{ key, item any }
	var failed error
	sorting := make([]keyed, len(all))
	for i, item := range all {
		key, err := by(item)
		if err != nil {
			return nil, err
		}
		sorting[i] = keyed{key, item}
	}
	slices.SortStableFunc(sorting, func(a, b keyed) int {
		if failed != nil {
			return 0
		}
		order, err := r.Order(a.key, b.key)
		failed = err
		if reversed {
			return -order
		}
		return order
	})
	out := make([]any, len(all))
	for i := range sorting {
		out[i] = sorting[i].item
	}
	return out, failed
}

func sorted(r *run, v any, a values) (any, error) {
	given, err := a.bind("reverse", "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	all, err := r.Iterate(v)
	if err != nil {
		return nil, err
	}
	out, err := ordered(r, all, r.key(given[2], given[1]), value.Truth(given[0]))
	return &value.List{Items: out}, err
}

func unique(r *run, v any, a values) (any, error) {
	given, err := a.bind("case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	all, err := r.Iterate(v)
	if err != nil {
		return nil, err
	}
	out, seen, by := &value.List{}, map[any]bool{}, r.key(given[1], given[0])
	for _, item := range all {
		key, err := by(item)
		if err != nil {
			return nil, err
		}
		key, ok, err := r.Key(key)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, errors.New("the elements have to be strings, numbers or none")
		}
		if !seen[key] {
			seen[key] = true
			out.Items = append(out.Items, item)
		}
	}
	return out, nil
}

// extreme is the least element, or the largest.
func extreme(sign int) filterFunction {
	return func(r *run, v any, a values) (any, error) {
		given, err := a.bind("case_sensitive", "attribute")
		if err != nil {
			return nil, err
		}
		all, err := r.Iterate(v)
		if err != nil {
			return nil, err
		}
		if len(all) == 0 {
			return value.Undefined{What: "there is no element, it is empty"}, nil
		}
		out, err := ordered(r, all, r.key(given[1], given[0]), sign > 0)
		if err != nil {
			return nil, err
		}
		return out[0], nil
	}
}

func sum(r *run, v any, a values) (any, error) {
	given, err := a.bind("attribute", "start")
	if err != nil {
		return nil, err
	}
	all, err := r.Iterate(v)
	if err != nil {
		return nil, err
	}
	out := given[1]
	if out == nil {
		out = int64(0)
	}
	for _, item := range all {
		if item, err = r.path(item, given[0]); err != nil {
			return nil, err
		}
		if out, err = r.Operate("+", out, item); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// items are the pairs of a mapping.
func items(r *run, v any, _ values) (any, error) {
	out := &value.List{}
	switch v := v.(type) {
	case *value.Dict:
		for _, k := range v.Keys {
			out.Items = append(out.Items, &value.List{Tuple: true, Items: []any{k, v.Values[k]}})
		}
	case value.Undefined:
	default:
		return nil, fmt.Errorf("this is %s, and no mapping", value.TypeName(v))
	}
	return out, r.Pay(len(out.Items))
}

func dictsort(r *run, v any, a values) (any, error) {
	given, err := a.bind("case_sensitive", "by", "reverse")
	if err != nil {
		return nil, err
	}
	if u, ok := v.(value.Undefined); ok {
		return nil, errors.New(u.What)
	}
	pairs, err := items(r, v, values{})
	if err != nil {
		return nil, err
	}
	at := int64(0)
	switch given[1] {
	case nil, "key":
	case "value":
		at = 1
	default:
		return nil, errors.New("it sorts by key or by value")
	}
	out, err := ordered(r, pairs.(*value.List).Items, r.key(at, given[0]), value.Truth(given[2]))
	return &value.List{Items: out}, err
}

// elements are those of a value; of what counts as false there are none.
func (r *run) elements(v any) ([]any, error) {
	if !value.Truth(v) {
		return nil, nil
	}
	return r.Iterate(v)
}

// mapped applies a filter to each element, or takes an attribute of each.
func mapped(r *run, v any, a values) (any, error) {
	all, err := r.elements(v)
	if err != nil {
		return nil, err
	}
	out := &value.List{}
	for _, item := range all {
		if len(a.positional) == 0 {
			item, err = r.attributeOr(item, a)
		} else {
			item, err = r.filtered(item, a)
		}
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, item)
	}
	return out, nil
}

func (r *run) attributeOr(item any, a values) (any, error) {
	given, err := a.bind("attribute", "default")
	if err != nil {
		return nil, err
	}
	out, err := r.path(item, given[0])
	if _, not := out.(value.Undefined); not && given[1] != nil {
		return given[1], nil
	}
	return out, err
}

// filtered applies the filter that the first argument names, with the others as its own.
func (r *run) filtered(item any, a values) (any, error) {
	name, _ := a.positional[0].(string)
	if filters[name] == nil {
		return nil, fmt.Errorf("no filter named '%s'", value.Short(name))
	}
	up, err := r.deeper()
	if err != nil {
		return nil, err
	}
	defer up()
	return r.filter(name, filters[name], item, values{a.positional[1:], a.named, a.names}, 0)
}

// chosen keeps the elements that a test holds for, or does not hold for; of each element, or of
// an attribute of it.
func chosen(wanted, attribute bool) filterFunction {
	return func(r *run, v any, a values) (any, error) {
		all, err := r.elements(v)
		if err != nil {
			return nil, err
		}
		var of any
		rest := a.positional
		if attribute {
			if len(rest) == 0 {
				return nil, errors.New("it needs the name of an attribute")
			}
			of, rest = rest[0], rest[1:]
		}
		check := func(_ *run, v any, _ values) (bool, error) { return value.Truth(v), nil }
		if len(rest) > 0 {
			name, _ := rest[0].(string)
			if check = tests[name]; check == nil {
				return nil, fmt.Errorf("no test named '%s'", value.Short(name))
			}
			rest = rest[1:]
		}
		out := &value.List{}
		for _, item := range all {
			tested, err := r.path(item, of)
			if err != nil {
				return nil, err
			}
			ok, err := check(r, tested, values{rest, a.named, a.names})
			if err != nil {
				return nil, err
			}
			if ok == wanted {
				out.Items = append(out.Items, item)
			}
		}
		return out, nil
	}
}

func batch(r *run, v any, a values) (any, error) {
	given, err := a.bind("linecount", "fill_with")
	if err != nil {
		return nil, err
	}
	n, ok := value.Integer(given[0])
	if !ok || n < 1 || n > MaxSteps {
		return nil, errors.New("it needs how many elements a batch has")
	}
	all, err := r.Iterate(v)
	if err != nil {
		return nil, err
	}
	out := &value.List{}
	for part := range slices.Chunk(all, int(n)) {
		part = slices.Clone(part)
		if given[1] != nil {
			if err := r.Pay(int(n) - len(part)); err != nil {
				return nil, err
			}
			for len(part) < int(n) {
				part = append(part, given[1])
			}
		}
		out.Items = append(out.Items, &value.List{Items: part})
	}
	return out, nil
}
