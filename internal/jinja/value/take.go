package value

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Take makes a value of what is given, with all that is in it: what is given is not changed, and is not
// looked at again.
func (m *Meter) Take(v any) (any, error) {
	if err := m.Step(); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil, bool, int64, float64, string:
		return v, nil
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, nil
		}
		f, _ := v.Float64()
		return f, nil
	case []any:
		return takeList(m, v)
	case []string:
		return takeList(m, v)
	case map[string]string:
		return takeMap(m, v)
	case map[string]any:
		return takeMap(m, v)
	}
	return Undefined{fmt.Sprintf("a value of type %T cannot be used in a template", v)}, nil
}

func takeList[V any](m *Meter, given []V) (any, error) {
	out := &List{}
	for _, v := range given {
		item, err := m.Take(v)
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, item)
	}
	return out, nil
}

func takeMap[V any](m *Meter, given map[string]V) (any, error) {
	out := &Dict{Values: map[any]any{}}
	for _, k := range slices.Sorted(maps.Keys(given)) {
		v, err := m.Take(given[k])
		if err != nil {
			return nil, err
		}
		out.Set(k, v)
	}
	return out, nil
}

// Give makes what functions get of a value; false if it has no such form.
func (m *Meter) Give(v any) (any, bool, error) { return m.give(v, 0) }

func (m *Meter) give(v any, depth int) (any, bool, error) {
	if err := m.Step(); err != nil {
		return nil, false, err
	}
	if depth > MaxDepth {
		return nil, false, errDeep
	}
	switch v := v.(type) {
	case *List:
		out := make([]any, len(v.Items))
		for i := range v.Items {
			var ok bool
			var err error
			if out[i], ok, err = m.give(v.Items[i], depth+1); !ok || err != nil {
				return nil, false, err
			}
		}
		return out, true, nil
	case *Dict:
		out := map[string]any{}
		for _, k := range v.Keys {
			name, ok := k.(string)
			if !ok {
				return nil, false, nil
			}
			var err error
			if out[name], ok, err = m.give(v.Values[k], depth+1); !ok || err != nil {
				return nil, false, err
			}
		}
		return out, true, nil
	case *Namespace, Undefined, Opaque:
		return nil, false, nil
	}
	return v, true, nil
}
