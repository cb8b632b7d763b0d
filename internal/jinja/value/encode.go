package value

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// JSON writes a value on one line, with its keys sorted, in ASCII, and without what has a meaning
// in HTML, as Jinja's tojson does.
func (m *Meter) JSON(out *strings.Builder, v any) error { return m.json(out, v, 0) }

func (m *Meter) json(out *strings.Builder, v any, depth int) error {
	if err := m.Step(); err != nil {
		return err
	}
	if depth > MaxDepth {
		return errors.New("the value nests too deep")
	}
	switch v := v.(type) {
	case nil:
		out.WriteString("null")
	case bool:
		out.WriteString(strconv.FormatBool(v))
	case int64, float64:
		if err := m.Write(out, v, depth); err != nil {
			return err
		}
	case string:
		if err := m.Grow(len(v)); err != nil {
			return err
		}
		jsonString(out, v)
	case *List:
		out.WriteByte('[')
		for i, item := range v.Items {
			if i > 0 {
				out.WriteString(", ")
			}
			if err := m.json(out, Take(item), depth+1); err != nil {
				return err
			}
		}
		out.WriteByte(']')
	case *Dict:
		return m.jsonMapping(out, v, depth)
	default:
		return fmt.Errorf("%s has no form in JSON", TypeName(v))
	}
	return nil
}

func (m *Meter) jsonMapping(out *strings.Builder, v *Dict, depth int) error {
	keys := map[string]any{}
	var sorted []string
	for _, k := range v.Keys {
		name, ok := k.(string)
		if !ok {
			shown, err := m.Text(k)
			if err != nil {
				return err
			}
			name = shown
		}
		keys[name] = v.Values[k]
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	out.WriteByte('{')
	for i, name := range sorted {
		if i > 0 {
			out.WriteString(", ")
		}
		if err := m.Grow(len(name)); err != nil {
			return err
		}
		jsonString(out, name)
		out.WriteString(": ")
		if err := m.json(out, Take(keys[name]), depth+1); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

// jsonString writes a string in ASCII, and without what has a meaning in HTML.
func jsonString(out *strings.Builder, s string) {
	out.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			out.WriteByte('\\')
			out.WriteRune(c)
		case c == '\n':
			out.WriteString(`\n`)
		case c == '\r':
			out.WriteString(`\r`)
		case c == '\t':
			out.WriteString(`\t`)
		case c == '\b':
			out.WriteString(`\b`)
		case c == '\f':
			out.WriteString(`\f`)
		case c < ' ' || c > '~' && c <= 0xffff || strings.ContainsRune("<>&'", c):
			fmt.Fprintf(out, `\u%04x`, c)
		case c > 0xffff:
			c -= 0x10000
			fmt.Fprintf(out, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		default:
			out.WriteRune(c)
		}
	}
	out.WriteByte('"')
}

// Bash writes a string so that a shell takes it as one word, on one line: as Python's shlex.quote
// does, with newlines as ANSI-C quotes.
func Bash(s string) (string, error) {
	if strings.ContainsRune(s, 0) {
		return "", errors.New("no word of a shell can have a NUL character in it")
	}
	if s == "" {
		return "''", nil
	}
	var out strings.Builder
	for i, part := range strings.Split(s, "\n") {
		if i > 0 {
			out.WriteString(`$'\n'`)
		}
		if strings.IndexFunc(part, func(c rune) bool { return c > '~' || !safe[byte(c)] }) < 0 {
			out.WriteString(part)
			continue
		}
		out.WriteString("'" + strings.ReplaceAll(part, "'", `'"'"'`) + "'")
	}
	return out.String(), nil
}

// safe are the characters that mean themselves to a shell, as in Python's shlex.
var safe = func() (out [128]bool) {
	for _, c := range "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-" {
		out[c] = true
	}
	return out
}()

// quote is a string as Python's repr writes it.
func quote(s string) string {
	mark := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		mark = '"'
	}
	var out strings.Builder
	out.WriteByte(mark)
	for _, c := range s {
		switch {
		case c == rune(mark) || c == '\\':
			out.WriteByte('\\')
			out.WriteRune(c)
		case c == '\n':
			out.WriteString(`\n`)
		case c == '\r':
			out.WriteString(`\r`)
		case c == '\t':
			out.WriteString(`\t`)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&out, `\x%02x`, c)
		default:
			out.WriteRune(c)
		}
	}
	out.WriteByte(mark)
	return out.String()
}

// floatText is a number as Python writes it.
func floatText(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	case f != 0 && (math.Abs(f) >= 1e16 || math.Abs(f) < 1e-4):
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// MaxWidth bounds the width of one field of a format.
const MaxWidth = 1000

// Format is Python's % of a string, for s, r, d, i, x, X, o, f, e, g and %.
func (m *Meter) Format(s string, v any) (any, error) {
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
		field, err := m.field(s[i+1:end], s[end], Take(given[0]))
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
	return out.String(), m.Grow(out.Len())
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
	if err := bounded(flags); err != nil {
		return "", err
	}
	switch verb {
	case 's', 'r':
		var shown strings.Builder
		if s, ok := v.(string); ok && verb == 's' {
			shown.WriteString(s)
		} else if err := m.Write(&shown, v, 0); err != nil {
			return "", err
		}
		return fmt.Sprintf("%"+flags+"s", shown.String()), nil
	case 'd', 'i', 'x', 'X', 'o', 'f', 'F', 'e', 'E', 'g', 'G':
		return numeric(flags, verb, v)
	}
	return "", fmt.Errorf("a format has no field %%%c", verb)
}

// bounded is an error if a field is too wide.
func bounded(flags string) error {
	for _, number := range strings.FieldsFunc(flags, func(c rune) bool { return c < '0' || c > '9' }) {
		if n, err := strconv.Atoi(number); err != nil || n > MaxWidth {
			return fmt.Errorf("a field of a format is wider than %d", MaxWidth)
		}
	}
	if strings.Count(flags, ".") > 1 {
		return errors.New("a field of a format has two precisions")
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
		n = int64(f)
	}
	return fmt.Sprintf("%"+flags+string(verb), n), nil
}
