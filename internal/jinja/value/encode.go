package value

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// JSON writes a value on one line, with its keys sorted, in ASCII, and without what has a meaning
// in HTML, as Jinja's tojson does.
func (m *Meter) JSON(out *strings.Builder, v any) error { return m.json(out, v, 0) }

func (m *Meter) json(out *strings.Builder, v any, depth int) error {
	if err := m.Step(); err != nil {
		return err
	}
	if depth > MaxDepth {
		return errDeep
	}
	switch v := v.(type) {
	case nil:
		out.WriteString("null")
		return m.Grow(len("null"))
	case bool:
		out.WriteString(strconv.FormatBool(v))
		return m.Grow(len("false"))
	case int64, float64:
		return m.write(out, v, depth)
	case string:
		return m.spell(out, v, jsonString)
	case *List:
		if err := m.between(len(v.Items)); err != nil {
			return err
		}
		out.WriteByte('[')
		for i, item := range v.Items {
			if i > 0 {
				out.WriteString(", ")
			}
			if err := m.json(out, item, depth+1); err != nil {
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
	if err := m.between(len(v.Keys)); err != nil {
		return err
	}
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
		if err := m.spell(out, name, jsonString); err != nil {
			return err
		}
		out.WriteString(": ")
		if err := m.json(out, keys[name], depth+1); err != nil {
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
			jsonUnit(out, c)
		case c > 0xffff:
			high, low := utf16.EncodeRune(c)
			jsonUnit(out, high)
			jsonUnit(out, low)
		default:
			out.WriteRune(c)
		}
	}
	out.WriteByte('"')
}

// jsonUnit writes 16 bits of a character.
func jsonUnit(out *strings.Builder, unit rune) {
	const digits = "0123456789abcdef"
	out.WriteString(`\u`)
	for shift := 12; shift >= 0; shift -= 4 {
		out.WriteByte(digits[unit>>shift&0xf])
	}
}

// Bash writes a string so that a shell takes it as one word, on one line: as Python's shlex.quote
// does, with newlines as ANSI-C quotes.
func (m *Meter) Bash(s string) (string, error) {
	if err := m.Scan(s); err != nil {
		return "", err
	}
	if strings.ContainsRune(s, 0) {
		return "", errors.New("no word of a shell can have a NUL character in it")
	}
	if s == "" {
		return "''", nil
	}
	var out strings.Builder
	err := m.spell(&out, s, bashWord)
	return out.String(), err
}

func bashWord(out *strings.Builder, s string) {
	first := true
	for part := range strings.SplitSeq(s, "\n") {
		if !first {
			out.WriteString(`$'\n'`)
		}
		first = false
		if strings.IndexFunc(part, func(c rune) bool { return c > '~' || !safe[byte(c)] }) < 0 {
			out.WriteString(part)
			continue
		}
		out.WriteString("'" + strings.ReplaceAll(part, "'", `'"'"'`) + "'")
	}
}

// safe are the characters that mean themselves to a shell, as in Python's shlex.
var safe = func() (out [128]bool) {
	for _, c := range "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-" {
		out[c] = true
	}
	return out
}()

// quote writes a string as Python's repr does.
func quote(out *strings.Builder, s string) {
	mark := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		mark = '"'
	}
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
			fmt.Fprintf(out, `\x%02x`, c)
		default:
			out.WriteRune(c)
		}
	}
	out.WriteByte(mark)
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
