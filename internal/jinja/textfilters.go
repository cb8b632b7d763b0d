package jinja

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/moor-storage/moor/internal/jinja/value"
)

// onText is a filter that makes text of text.
func onText(f func(string) string) filterFunction {
	return func(r *run, v any, a values) (any, error) {
		if _, err := a.bind(); err != nil {
			return nil, err
		}
		s, err := r.Text(v)
		if err != nil {
			return nil, err
		}
		out := f(s)
		return out, r.Grow(len(out))
	}
}

func stringFilter(r *run, v any, _ values) (any, error) { return r.Text(v) }

func capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return strings.ToUpper(s[:n]) + strings.ToLower(s[n:])
}

func title(s string) string {
	inside := false
	return strings.Map(func(c rune) rune {
		was := inside
		inside = !unicode.IsSpace(c) && !strings.ContainsRune("-([{<", c)
		if was {
			return unicode.ToLower(c)
		}
		return unicode.ToUpper(c)
	}, s)
}

// escaper writes what has a meaning in HTML so that it has none.
var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

// textual reads a text and arguments of a filter, with what they are if they are missing.
func textual(r *run, v any, a values, names []string, missing ...any) (string, []any, error) {
	s, err := r.Text(v)
	if err != nil {
		return "", nil, err
	}
	given, err := a.bind(names...)
	if err != nil {
		return "", nil, err
	}
	for i := range given {
		if given[i] == nil && i < len(missing) {
			given[i] = missing[i]
		}
	}
	return s, given, nil
}

func trim(r *run, v any, a values) (any, error) {
	s, given, err := textual(r, v, a, []string{"chars"})
	if err != nil {
		return nil, err
	}
	return r.Trim(s, given[0], value.Both)
}

func replace(r *run, v any, a values) (any, error) {
	s, given, err := textual(r, v, a, []string{"old", "new", "count"}, nil, nil, int64(-1))
	if err != nil {
		return nil, err
	}
	old, one := given[0].(string)
	with, two := given[1].(string)
	n, three := value.Integer(given[2])
	if !one || !two || !three {
		return nil, errors.New("replace needs two strings, and may have a number")
	}
	return r.Replace(s, old, with, n)
}

func format(r *run, v any, a values) (any, error) {
	s, err := r.Text(v)
	if err != nil {
		return nil, err
	}
	return r.Format(s, &value.List{Items: a.positional, Tuple: true})
}

func indent(r *run, v any, a values) (any, error) {
	if _, ok := v.(string); !ok {
		return nil, fmt.Errorf("this is %s, and no string", value.TypeName(v))
	}
	s, given, err := textual(r, v, a, []string{"width", "first", "blank"}, int64(4), false, false)
	if err != nil {
		return nil, err
	}
	margin, ok := given[0].(string)
	if !ok {
		n, ok := value.Integer(given[0])
		if !ok || n < 0 || n > value.MaxWidth {
			return nil, fmt.Errorf("the width has to be a string, or a number from 0 to %d", value.MaxWidth)
		}
		margin = strings.Repeat(" ", int(n))
	}
	return r.Indent(s, margin, value.Truth(given[1]), value.Truth(given[2]))
}

func center(r *run, v any, a values) (any, error) {
	s, given, err := textual(r, v, a, []string{"width"}, int64(80))
	if err != nil {
		return nil, err
	}
	n, ok := value.Integer(given[0])
	if !ok || n > value.MaxWidth {
		return nil, fmt.Errorf("the width has to be a number up to %d", value.MaxWidth)
	}
	return r.Center(s, n)
}

func truncate(r *run, v any, a values) (any, error) {
	if _, ok := v.(string); !ok {
		return nil, fmt.Errorf("this is %s, and no string", value.TypeName(v))
	}
	s, given, err := textual(r, v, a, []string{"length", "killwords", "end", "leeway"}, int64(255), false, "...", int64(5))
	if err != nil {
		return nil, err
	}
	n, one := value.Integer(given[0])
	end, two := given[2].(string)
	leeway, three := value.Integer(given[3])
	if !one || !two || !three || leeway < 0 {
		return nil, errors.New("truncate needs a length, a text for the end, and a leeway")
	}
	return r.Truncate(s, n, end, leeway, value.Truth(given[1]))
}

func wordcount(r *run, v any, _ values) (any, error) {
	s, err := r.Text(v)
	if err != nil {
		return nil, err
	}
	return r.CountWords(s)
}

func urlencode(r *run, v any, _ values) (any, error) {
	switch v.(type) {
	case *value.List, *value.Dict:
		return nil, fmt.Errorf("this is %s, and no string", value.TypeName(v))
	}
	s, err := r.Text(v)
	if err != nil {
		return nil, err
	}
	out := strings.ReplaceAll(strings.ReplaceAll(url.QueryEscape(s), "+", "%20"), "%2F", "/")
	return out, r.Grow(len(out))
}

// toJSON writes a value as JSON on one line, with its keys sorted, and safe within HTML.
func toJSON(r *run, v any, a values) (any, error) {
	if _, err := a.bind(); err != nil {
		return nil, err
	}
	var out strings.Builder
	err := r.JSON(&out, v)
	return out.String(), err
}

// toBash writes a string or a number so that a shell takes it as one word, on one line.
func toBash(r *run, v any, a values) (any, error) {
	if _, err := a.bind(); err != nil {
		return nil, err
	}
	switch v.(type) {
	case string, int64, float64, bool:
	default:
		return nil, fmt.Errorf("this is %s, and no string or number", value.TypeName(v))
	}
	s, err := r.Text(v)
	if err != nil {
		return nil, err
	}
	return r.Bash(s)
}

func toInt(r *run, v any, a values) (any, error) {
	if u, ok := v.(value.Undefined); ok {
		return nil, errors.New(u.What)
	}
	given, err := a.bind("default", "base")
	if err != nil {
		return nil, err
	}
	base := int64(10)
	if n, ok := value.Integer(given[1]); ok && n >= 2 && n <= 36 {
		base = n
	}
	if n, ok := value.Integer(v); ok {
		return n, nil
	}
	if f, ok := v.(float64); ok && math.Abs(f) < 1<<62 {
		return int64(f), nil
	}
	if s, ok := v.(string); ok {
		if n, ok, err := r.Whole(s, int(base)); ok || err != nil {
			return n, err
		}
	}
	if a.has(0, "default") {
		return given[0], nil
	}
	return int64(0), nil
}

func toFloat(r *run, v any, a values) (any, error) {
	if u, ok := v.(value.Undefined); ok {
		return nil, errors.New(u.What)
	}
	given, err := a.bind("default")
	if err != nil {
		return nil, err
	}
	if f, ok := value.Float(v); ok {
		return f, nil
	}
	if s, ok := v.(string); ok {
		if f, ok, err := r.Number(s); ok || err != nil {
			return f, err
		}
	}
	if a.has(0, "default") {
		return given[0], nil
	}
	return 0.0, nil
}

func abs(r *run, v any, _ values) (any, error) {
	if n, ok := value.Integer(v); ok {
		if n < 0 {
			return r.Operate("-", int64(0), n)
		}
		return n, nil
	}
	if f, ok := v.(float64); ok {
		return math.Abs(f), nil
	}
	return nil, fmt.Errorf("this is %s, and no number", value.TypeName(v))
}

func round(_ *run, v any, a values) (any, error) {
	given, err := a.bind("precision", "method")
	if err != nil {
		return nil, err
	}
	f, ok := value.Float(v)
	if !ok {
		return nil, fmt.Errorf("this is %s, and no number", value.TypeName(v))
	}
	precision, _ := value.Integer(given[0])
	if precision < -20 || precision > 20 {
		return nil, errors.New("the precision is from -20 to 20")
	}
	if n, ok := value.Integer(v); ok && precision >= 0 && (given[1] == nil || given[1] == "common") {
		return n, nil
	}
	scale := math.Pow(10, float64(precision))
	switch given[1] {
	case nil, "common":
		switch {
		case precision < 0:
			return math.RoundToEven(f*scale) / scale, nil
		case math.Abs(f) >= 1<<53: // it is whole
			return f, nil
		}
		return strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(precision), 64), 64)
	case "ceil":
		return math.Ceil(f*scale) / scale, nil
	case "floor":
		return math.Floor(f*scale) / scale, nil
	}
	return nil, errors.New("the method is common, ceil or floor")
}

// otherwise is what a value is replaced by where it is not defined, or, if that is asked for, false.
func otherwise(_ *run, v any, a values) (any, error) {
	given, err := a.bind("default_value", "boolean")
	if err != nil {
		return nil, err
	}
	if given[0] == nil && !a.has(0, "default_value") {
		given[0] = ""
	}
	if _, not := v.(value.Undefined); not || value.Truth(given[1]) && !value.Truth(v) {
		return given[0], nil
	}
	return v, nil
}

func length(r *run, v any, _ values) (any, error) {
	switch v := v.(type) {
	case string:
		return int64(utf8.RuneCountInString(v)), r.Scan(v)
	case *value.List:
		return int64(len(v.Items)), nil
	case *value.Dict:
		return int64(len(v.Keys)), nil
	case value.Undefined:
		return int64(0), nil
	}
	return nil, fmt.Errorf("%s has no length", value.TypeName(v))
}
