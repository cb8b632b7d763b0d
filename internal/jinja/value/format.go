package value

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MaxWidth bounds the width of one field of a format, and maxFlags how long its flags are, with the
// width and the precision.
const (
	MaxWidth = 1000
	maxFlags = 16
)

// Format is Python's % of a string, for s, r, d, i, x, X, o, f, e, g and %.
func (m *Meter) Format(s string, v any) (any, error) {
	if err := m.Grow(len(s)); err != nil {
		return nil, err
	}
	given := []any{v}
	if l, ok := v.(*List); ok && l.Tuple {
		given = l.Items
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			out.WriteByte(s[i])
			continue
		}
		end := i + 1
		for end < len(s) && strings.IndexByte("0123456789.+- #", s[end]) >= 0 {
			end++
		}
		if end == len(s) {
			return nil, errors.New("the format ends within a field")
		}
		if s[end] == '%' {
			out.WriteByte('%')
			i = end
			continue
		}
		if len(given) == 0 {
			return nil, errors.New("the format has more fields than there are values")
		}
		field, err := m.field(s[i+1:end], s[end], given[0])
		if err != nil {
			return nil, err
		}
		if err := m.Grow(len(field)); err != nil {
			return nil, err
		}
		out.WriteString(field)
		given, i = given[1:], end
	}
	if len(given) > 0 && !optional(v) {
		return nil, errors.New("the format has fewer fields than there are values")
	}
	return out.String(), nil
}

// optional reports a value that a format need not use: Python takes it for one that has elements.
func optional(v any) bool {
	switch v := v.(type) {
	case *Dict, Undefined:
		return true
	case *List:
		return !v.Tuple
	}
	return false
}

// field is one value in a format.
func (m *Meter) field(flags string, verb byte, v any) (string, error) {
	if err := m.Step(); err != nil {
		return "", err
	}
	if err := bounded(flags); err != nil {
		return "", err
	}
	switch verb {
	case 's', 'r':
		shown, err := m.shown(verb, v)
		return fmt.Sprintf("%"+flags+"s", shown), err
	case 'd', 'i', 'x', 'X', 'o', 'f', 'F', 'e', 'E', 'g', 'G':
		return numeric(flags, verb, v)
	}
	return "", fmt.Errorf("a format has no field %%%c", verb)
}

// shown is a value as the fields s and r show it.
func (m *Meter) shown(verb byte, v any) (string, error) {
	if s, ok := v.(string); ok && verb == 's' {
		return s, m.Scan(s)
	}
	return m.written(v)
}

// bounded is an error if a field is too wide, or its flags cannot be read.
func bounded(flags string) error {
	if len(flags) > maxFlags {
		return fmt.Errorf("the flags of a field of a format are longer than %d", maxFlags)
	}
	width, precision, _ := strings.Cut(strings.TrimLeft(flags, "-+ #0"), ".")
	for _, number := range []string{width, precision} {
		if number == "" {
			continue
		}
		switch n, err := strconv.ParseUint(number, 10, 16); {
		case errors.Is(err, strconv.ErrSyntax):
			return fmt.Errorf("the flags of a field of a format are '%s', which cannot be read", flags)
		case err != nil || n > MaxWidth:
			return fmt.Errorf("a field of a format is wider than %d", MaxWidth)
		}
	}
	return nil
}

// numeric is a number in a format.
func numeric(flags string, verb byte, v any) (string, error) {
	f, ok := Float(v)
	if !ok {
		return "", fmt.Errorf("the format needs a number, and this is %s", TypeName(v))
	}
	switch verb {
	case 'i':
		verb = 'd'
	case 'f', 'F', 'e', 'E', 'g', 'G':
		return fmt.Sprintf("%"+flags+string(verb), f), nil
	}
	n, whole := Integer(v)
	if !whole {
		if math.IsNaN(f) || math.Abs(f) >= 1<<63 {
			return "", errors.New("a number of the format has more than 64 bits")
		}
		n = int64(f)
	}
	return fmt.Sprintf("%"+flags+string(verb), n), nil
}
