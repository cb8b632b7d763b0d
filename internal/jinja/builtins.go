package jinja

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/moor-storage/moor/internal/jinja/value"
)

// filterFunction is a filter, and testFunction a test. Their errors get the name and the line
// where they are used.
type (
	filterFunction func(r *run, v any, a values) (any, error)
	testFunction   func(r *run, v any, a values) (bool, error)
)

// filters are all there are. They are Jinja's, but for tobash.
var filters map[string]filterFunction

// tests are all there are.
var tests map[string]testFunction

// Filters call filters and tests by name, so both are filled in when the program starts.
func init() {
	filters = map[string]filterFunction{
		"upper": onText(strings.ToUpper), "lower": onText(strings.ToLower), "title": onText(title),
		"capitalize": onText(capitalize), "string": stringFilter, "e": onText(escaper.Replace), "escape": onText(escaper.Replace),
		"trim": trim, "replace": replace, "format": format, "indent": indent, "center": center, "truncate": truncate,
		"wordcount": wordcount, "urlencode": urlencode, "tojson": toJSON, "tobash": toBash,
		"int": toInt, "float": toFloat, "abs": abs, "round": round,
		"default": otherwise, "d": otherwise,
		"length": length, "count": length, "first": first, "last": last, "join": join, "list": toList, "reverse": reverse,
		"sort": sorted, "unique": unique, "min": extreme(-1), "max": extreme(1), "sum": sum, "dictsort": dictsort, "items": items,
		"map": mapped, "select": chosen(true, false), "reject": chosen(false, false),
		"selectattr": chosen(true, true), "rejectattr": chosen(false, true), "batch": batch,
	}
	tests = map[string]testFunction{
		"defined":   func(_ *run, v any, _ values) (bool, error) { _, not := v.(value.Undefined); return !not, nil },
		"undefined": func(_ *run, v any, _ values) (bool, error) { _, not := v.(value.Undefined); return not, nil },
		"none":      func(_ *run, v any, _ values) (bool, error) { return v == nil, nil },
		"true":      func(_ *run, v any, _ values) (bool, error) { return v == true, nil },
		"false":     func(_ *run, v any, _ values) (bool, error) { return v == false, nil },
		"boolean":   is[bool], "integer": is[int64], "float": is[float64], "string": is[string], "mapping": is[*value.Dict],
		"number": func(_ *run, v any, _ values) (bool, error) { _, ok := value.Float(v); return ok, nil },
		"sequence": func(_ *run, v any, _ values) (bool, error) {
			switch v.(type) {
			case string, *value.List, *value.Dict:
				return true, nil
			}
			return false, nil
		},
		"callable": is[callable],
		"odd":      divisible(2, false), "even": divisible(2, true), "divisibleby": divisibleBy,
		"lower": cased(unicode.ToLower), "upper": cased(unicode.ToUpper),
		"in": func(r *run, v any, a values) (bool, error) {
			given, err := one(a)
			if err != nil {
				return false, err
			}
			return r.Contains(given, v)
		},
	}
	tests["iterable"] = tests["sequence"]
	for operator, names := range map[string][]string{
		"==": {"eq", "equalto", "sameas"}, "!=": {"ne"}, "<": {"lt", "lessthan"}, "<=": {"le"}, ">": {"gt", "greaterthan"}, ">=": {"ge"},
	} {
		for _, name := range names {
			tests[name] = compared(operator)
		}
	}
}

func is[T any](_ *run, v any, _ values) (bool, error) { _, ok := v.(T); return ok, nil }

// cased is a text with letters that have a case, all of which have this one.
func cased(to func(rune) rune) testFunction {
	return func(r *run, v any, _ values) (bool, error) { return r.Cased(v, to) }
}

// one is the only argument of a test.
func one(a values) (any, error) {
	if len(a.positional) != 1 || len(a.named) > 0 {
		return nil, errors.New("it needs one argument")
	}
	return a.positional[0], nil
}

func compared(operator string) testFunction {
	return func(r *run, v any, a values) (bool, error) {
		given, err := one(a)
		if err != nil {
			return false, err
		}
		return r.Compare(operator, v, given)
	}
}

// divisible is a whole number that leaves no rest, or one that leaves a rest.
func divisible(by int64, wanted bool) testFunction {
	return func(_ *run, v any, _ values) (bool, error) {
		n, ok := value.Integer(v)
		if !ok {
			return false, fmt.Errorf("this is %s, and no whole number", value.TypeName(v))
		}
		return (n%by == 0) == wanted, nil
	}
}

func divisibleBy(r *run, v any, a values) (bool, error) {
	given, err := one(a)
	if err != nil {
		return false, err
	}
	by, ok := value.Integer(given)
	if !ok || by == 0 {
		return false, errors.New("it needs a whole number that is not 0")
	}
	return divisible(by, true)(r, v, a)
}

// globals are the functions that all templates have.
var globals = map[string]func(*run, values) (any, error){"range": numbers, "namespace": newNamespace, "dict": newDict}

func numbers(r *run, a values) (any, error) {
	given, err := a.bind("start", "stop", "step")
	if err != nil {
		return nil, err
	}
	bounds := [3]int64{0, 0, 1}
	for i, v := range given[:len(a.positional)] {
		n, ok := value.Integer(v)
		if !ok {
			return nil, fmt.Errorf("%s is no whole number", value.TypeName(v))
		}
		bounds[i] = n
	}
	switch {
	case len(a.positional) == 0 || len(a.names) > 0 || bounds[2] == 0:
		return nil, errors.New("it needs one to three whole numbers, the third of which is not 0")
	case len(a.positional) == 1:
		bounds[0], bounds[1] = 0, bounds[0]
	}
	out := &value.List{}
	for n := bounds[0]; bounds[2] > 0 && n < bounds[1] || bounds[2] < 0 && n > bounds[1]; {
		if len(out.Items) == MaxRange {
			return nil, fmt.Errorf("it gives more than %d numbers", MaxRange)
		}
		out.Items = append(out.Items, n)
		next := n + bounds[2]
		if (next > n) != (bounds[2] > 0) {
			break // it would have more than 64 bits
		}
		n = next
	}
	return out, r.Pay(len(out.Items))
}

func newNamespace(_ *run, a values) (any, error) {
	out := &value.Namespace{Attributes: map[string]any{}}
	for i, name := range a.names {
		out.Attributes[name] = a.named[i]
	}
	if len(a.positional) > 0 {
		return nil, errors.New("it takes arguments with names only")
	}
	return out, nil
}

func newDict(_ *run, a values) (any, error) {
	out := &value.Dict{Values: map[any]any{}}
	for i, name := range a.names {
		out.Set(name, a.named[i])
	}
	if len(a.positional) > 0 {
		return nil, errors.New("it takes arguments with names only")
	}
	return out, nil
}

// method is a method of a value; nil if it has none of that name. There are those that change
// nothing, and that templates have a use for.
func method(of any, name string) func(*run, values) (any, error) {
	switch of := of.(type) {
	case string:
		call := stringMethod(of, name)
		if call == nil {
			return nil
		}
		return func(r *run, a values) (any, error) {
			if err := r.Scan(of); err != nil {
				return nil, err
			}
			return call(r, a)
		}
	case *value.Dict:
		return dictMethod(of, name)
	}
	return nil
}

func dictMethod(of *value.Dict, name string) func(*run, values) (any, error) {
	switch name {
	case "get":
		return func(r *run, a values) (any, error) {
			given, err := a.bind("key", "default")
			if err != nil {
				return nil, err
			}
			if v, ok, err := r.Get(of, given[0]); ok || err != nil {
				return v, err
			}
			return given[1], nil
		}
	case "items":
		return func(r *run, _ values) (any, error) { return items(r, of, values{}) }
	case "keys":
		return func(r *run, _ values) (any, error) { return &value.List{Items: of.Keys}, r.Pay(len(of.Keys)) }
	case "values":
		return func(r *run, _ values) (any, error) {
			out := &value.List{}
			for _, k := range of.Keys {
				out.Items = append(out.Items, of.Values[k])
			}
			return out, r.Pay(len(out.Items))
		}
	}
	return nil
}

// plain are the methods of strings without arguments.
var plain = map[string]func(string) any{
	"upper": func(s string) any { return strings.ToUpper(s) }, "lower": func(s string) any { return strings.ToLower(s) },
	"title": func(s string) any { return title(s) }, "capitalize": func(s string) any { return capitalize(s) },
	"isdigit": func(s string) any { return s != "" && strings.IndexFunc(s, not(unicode.IsDigit)) < 0 },
	"isalpha": func(s string) any { return s != "" && strings.IndexFunc(s, not(unicode.IsLetter)) < 0 },
}

func not(f func(rune) bool) func(rune) bool { return func(c rune) bool { return !f(c) } }

func stringMethod(s, name string) func(*run, values) (any, error) {
	if f := plain[name]; f != nil {
		return func(r *run, a values) (any, error) {
			if _, err := a.bind(); err != nil {
				return nil, err
			}
			return f(s), r.Grow(len(s))
		}
	}
	switch name {
	case "strip", "lstrip", "rstrip":
		side := map[string]value.Side{"strip": value.Both, "lstrip": value.Left, "rstrip": value.Right}[name]
		return func(r *run, a values) (any, error) {
			given, err := a.bind("chars")
			if err != nil {
				return nil, err
			}
			return r.Trim(s, given[0], side)
		}
	case "startswith":
		return func(r *run, a values) (any, error) { return affix(r, s, strings.HasPrefix, a) }
	case "endswith":
		return func(r *run, a values) (any, error) { return affix(r, s, strings.HasSuffix, a) }
	case "split", "rsplit", "splitlines":
		return func(r *run, a values) (any, error) { return split(r, s, name, a) }
	case "join":
		return func(r *run, a values) (any, error) {
			given, err := one(a)
			if err != nil {
				return nil, err
			}
			return join(r, given, values{positional: []any{s}})
		}
	case "replace":
		return func(r *run, a values) (any, error) { return replace(r, s, a) }
	case "count", "find":
		return func(_ *run, a values) (any, error) { return search(s, name, a) }
	}
	return nil
}

// search is count and find.
func search(s, name string, a values) (any, error) {
	given, err := one(a)
	part, ok := given.(string)
	switch {
	case err != nil || !ok:
		return nil, errors.New("it needs one string")
	case name == "count":
		return int64(strings.Count(s, part)), nil
	}
	at := strings.Index(s, part)
	if at > 0 {
		at = utf8.RuneCountInString(s[:at])
	}
	return int64(at), nil
}

// affix is startswith and endswith, which take a tuple of strings too.
func affix(r *run, s string, has func(s, part string) bool, a values) (any, error) {
	given, err := one(a)
	if err != nil {
		return nil, err
	}
	return r.Affix(s, given, has)
}

// split is split, rsplit and splitlines of strings.
func split(r *run, s, name string, a values) (any, error) {
	given, err := a.bind("sep", "maxsplit")
	if err != nil {
		return nil, err
	}
	most, ok := value.Integer(given[1])
	if !ok || most < 0 {
		most = MaxBytes
	}
	separator, ok := given[0].(string)
	switch {
	case name == "splitlines":
		return r.Parts(strings.TrimSuffix(s, "\n"), "\n", value.MaxBytes)
	case given[0] == nil:
		return r.Words(s, most)
	case !ok || separator == "":
		return nil, errors.New("the separator has to be a string that is not empty")
	case name == "rsplit":
		return r.LastParts(s, separator, most)
	}
	return r.Parts(s, separator, most)
}
