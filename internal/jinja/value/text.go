package value

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shownText is how much of a text an error shows.
const shownText = 60

// Short is a text as an error shows it.
func Short(s string) string {
	if len(s) <= shownText {
		return s
	}
	return s[:offset(s, shownText)] + "..."
}

// Folded is a string without the difference of cases, and any other value as it is.
func (m *Meter) Folded(v any) (any, error) {
	s, ok := v.(string)
	if !ok {
		return v, nil
	}
	if err := m.Scan(s); err != nil {
		return nil, err
	}
	out := strings.ToLower(s)
	return out, m.Grow(len(out))
}

// Cased reports a text with letters that have a case, all of which are as a function makes them.
func (m *Meter) Cased(v any, to func(rune) rune) (bool, error) {
	s, err := m.Text(v)
	found := false
	for _, c := range s {
		if to(c) != c {
			return false, err
		}
		found = found || unicode.ToLower(c) != unicode.ToUpper(c)
	}
	return found, err
}

// Side is where a text is trimmed.
type Side int

// The sides of a text.
const (
	Both Side = iota
	Left
	Right
)

// Trim takes white space away, or the characters that are given.
func (m *Meter) Trim(s string, chars any, side Side) (any, error) {
	if err := m.Scan(s); err != nil {
		return nil, err
	}
	away := unicode.IsSpace
	switch chars := chars.(type) {
	case nil:
	case string:
		if err := m.Pay(len(s) * len(chars) / stride); err != nil {
			return nil, err
		}
		away = func(c rune) bool { return strings.ContainsRune(chars, c) }
	default:
		return nil, errors.New("the characters to trim are " + TypeName(chars))
	}
	if side != Right {
		s = strings.TrimLeftFunc(s, away)
	}
	if side != Left {
		s = strings.TrimRightFunc(s, away)
	}
	return s, nil
}

// Affix reports whether a text begins or ends with another, or with one of a tuple.
func (m *Meter) Affix(s string, given any, has func(s, part string) bool) (bool, error) {
	all := []any{given}
	if l, ok := given.(*List); ok && l.Tuple {
		all = l.Items
	}
	for _, v := range all {
		part, ok := v.(string)
		if !ok {
			return false, errors.New(TypeName(v) + " is no string")
		}
		if err := m.Pay(1 + len(part)/stride); err != nil {
			return false, err
		}
		if has(s, part) {
			return true, nil
		}
	}
	return false, nil
}

// Parts are those between separators; there are no more separators than most.
func (m *Meter) Parts(s, separator string, most int64) (*List, error) {
	n := int(min(most, int64(strings.Count(s, separator)))) + 1
	if err := m.Pay(len(s)/stride + n); err != nil {
		return nil, err
	}
	return texts(strings.SplitN(s, separator, n)), nil
}

// LastParts are parts of which the first is what is left.
func (m *Meter) LastParts(s, separator string, most int64) (*List, error) {
	n := int(min(most, int64(strings.Count(s, separator))))
	if err := m.Pay(len(s)/stride + n + 1); err != nil {
		return nil, err
	}
	parts := make([]string, 0, n+1)
	for at := strings.LastIndex(s, separator); len(parts) < n && at >= 0; at = strings.LastIndex(s, separator) {
		parts, s = append(parts, s[at+len(separator):]), s[:at]
	}
	parts = append(parts, s)
	slices.Reverse(parts)
	return texts(parts), nil
}

// spaces are what separates words.
const spaces = " \t\n\r\v\f"

// Words are those between white space, the last of which is all that is left after most of them.
func (m *Meter) Words(s string, most int64) (*List, error) {
	if err := m.Scan(s); err != nil {
		return nil, err
	}
	out := &List{}
	for s = strings.Trim(s, spaces); s != ""; s = strings.TrimLeft(s, spaces) {
		if err := m.Step(); err != nil {
			return nil, err
		}
		end := strings.IndexAny(s, spaces)
		if end < 0 || int64(len(out.Items)) == most {
			end = len(s)
		}
		out.Items, s = append(out.Items, s[:end]), s[end:]
	}
	return out, nil
}

func texts(all []string) *List {
	out := &List{Items: make([]any, len(all))}
	for i, s := range all {
		out.Items[i] = s
	}
	return out
}

// CountWords is how many words of letters, digits and underscores there are.
func (m *Meter) CountWords(s string) (int64, error) {
	n, inside := int64(0), false
	for _, c := range s {
		was := inside
		if inside = c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c); inside && !was {
			n++
		}
	}
	return n, m.Scan(s)
}

// Replace replaces the first n of a text in another, all of them if n is negative.
func (m *Meter) Replace(s, old, with string, n int64) (any, error) {
	if err := m.Scan(s); err != nil {
		return nil, err
	}
	times := strings.Count(s, old)
	if n >= 0 {
		times = int(min(n, int64(times)))
	}
	if err := m.Grow(len(s) + times*len(with)); err != nil {
		return nil, err
	}
	return strings.Replace(s, old, with, times), nil
}

// Indent writes a margin before each line: before the first and before empty ones if that is asked for.
func (m *Meter) Indent(s, margin string, first, blank bool) (any, error) {
	if err := m.Grow(len(s) + (strings.Count(s, "\n")+1)*len(margin)); err != nil {
		return nil, err
	}
	var out strings.Builder
	begin := true
	for line := range strings.SplitSeq(s, "\n") {
		if !begin {
			out.WriteByte('\n')
		}
		if begin && first || !begin && (line != "" || blank) {
			out.WriteString(margin)
		}
		out.WriteString(line)
		begin = false
	}
	return out.String(), nil
}

// Center writes spaces around a text, so that it has n characters.
func (m *Meter) Center(s string, n int64) (any, error) {
	if err := m.Scan(s); err != nil {
		return nil, err
	}
	room := int(max(n, 0)) - utf8.RuneCountInString(s)
	if room <= 0 {
		return s, nil
	}
	if err := m.Grow(len(s) + room); err != nil {
		return nil, err
	}
	left := room/2 + room&int(n)&1
	return strings.Repeat(" ", left) + s + strings.Repeat(" ", room-left), nil
}

// Truncate shortens a text that is longer than n characters and a leeway, so that it has n with its
// end; between words, unless these are to be cut.
func (m *Meter) Truncate(s string, n int64, end string, leeway int64, cut bool) (any, error) {
	if err := m.Pay((len(s) + len(end)) / stride); err != nil {
		return nil, err
	}
	size := int64(utf8.RuneCountInString(end))
	if n < size {
		return nil, errors.New("the length to truncate to is less than that of the end")
	}
	if int64(utf8.RuneCountInString(s))-n <= leeway {
		return s, nil
	}
	kept := s[:offset(s, int(n-size))]
	if i := strings.LastIndexByte(kept, ' '); i >= 0 && !cut {
		kept = kept[:i]
	}
	if err := m.Grow(len(kept) + len(end)); err != nil {
		return nil, err
	}
	return kept + end, nil
}

// Whole reads a whole number in a base, or drops the fraction of what is none; false if it cannot.
func (m *Meter) Whole(s string, base int) (int64, bool, error) {
	if err := m.Grow(len(s)); err != nil { // what cannot be read is copied into an error
		return 0, false, err
	}
	s = strings.TrimSpace(s)
	if n, err := strconv.ParseInt(prefixed(s, base), base, 64); err == nil {
		return n, true, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	return int64(f), err == nil && math.Abs(f) < 1<<62, nil
}

// prefixed is a number without the prefix that its base may have.
func prefixed(s string, base int) string {
	prefix := map[int]string{2: "0b", 8: "0o", 16: "0x"}[base]
	if prefix == "" {
		return strings.TrimPrefix(s, "+")
	}
	return strings.TrimPrefix(strings.ToLower(s), prefix)
}

// Number reads a number; false if it is none.
func (m *Meter) Number(s string) (float64, bool, error) {
	if err := m.Grow(len(s)); err != nil { // as for Whole
		return 0, false, err
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	return f, err == nil, nil
}
