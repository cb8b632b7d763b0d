package jinja

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/moor-storage/moor/internal/jinja/value"
)

// kind is what a token is.
type kind int

const (
	tokenEnd kind = iota
	tokenData
	tokenVariable    // {{
	tokenVariableEnd // }}
	tokenBlock       // {%
	tokenBlockEnd    // %}
	tokenName
	tokenString
	tokenInteger
	tokenFloat
	tokenOperator
)

// names of kinds, for errors.
var names = map[kind]string{
	tokenEnd: "the end of the template", tokenData: "text", tokenVariable: "'{{'", tokenVariableEnd: "'}}'", tokenBlock: "'{%'",
	tokenBlockEnd: "'%}'", tokenName: "a name", tokenString: "a string", tokenInteger: "a number", tokenFloat: "a number", tokenOperator: "an operator",
}

type token struct {
	kind kind
	text string // of a string: its value
	line int
}

func (t token) String() string {
	switch t.kind {
	case tokenName, tokenOperator, tokenInteger, tokenFloat:
		return strconv.Quote(t.text)
	}
	return names[t.kind]
}

// lexer cuts a template into tokens.
type lexer struct {
	rest string
	line int
	// fresh: what comes is at the beginning of a line.
	fresh bool
	out   []token
	// open are the brackets of the expression that are not closed.
	open []byte
}

// lex returns the tokens of a template, the last of which is the end.
func lex(source string) ([]token, error) {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := &lexer{rest: strings.TrimSuffix(source, "\n"), line: 1, fresh: true}
	for l.rest != "" {
		if err := l.data(); err != nil {
			return nil, err
		}
	}
	l.emit(tokenEnd, "")
	return l.out, nil
}

func (l *lexer) emit(k kind, text string) {
	l.out = append(l.out, token{kind: k, text: text, line: l.line})
}

// skip goes n bytes on.
func (l *lexer) skip(n int) {
	taken := l.rest[:n]
	l.line += strings.Count(taken, "\n")
	l.fresh = strings.HasSuffix(taken, "\n")
	l.rest = l.rest[n:]
}

// opening finds the first opening delimiter.
func opening(text string) int {
	for i := 0; i+1 < len(text); i++ {
		if text[i] == '{' && (text[i+1] == '{' || text[i+1] == '%' || text[i+1] == '#') {
			return i
		}
	}
	return -1
}

// data takes text up to a delimiter, and what that opens.
func (l *lexer) data() error {
	at := opening(l.rest)
	if at < 0 {
		l.text(l.rest)
		l.skip(len(l.rest))
		return nil
	}
	text, sort, sign := l.rest[:at], l.rest[at+1], byte(0)
	if at+2 < len(l.rest) && (l.rest[at+2] == '-' || l.rest[at+2] == '+') {
		sign = l.rest[at+2]
	}
	l.text(l.before(text, sort, sign))
	l.skip(at)
	begun := l.line
	l.skip(2)
	if sign != 0 {
		l.skip(1)
	}
	switch sort {
	case '#':
		return l.comment(begun)
	case '{':
		l.emit(tokenVariable, "")
		return l.expression("}}", tokenVariableEnd)
	}
	if body, ok := word(l.rest, "raw"); ok {
		return l.raw(body)
	}
	l.emit(tokenBlock, "")
	return l.expression("%}", tokenBlockEnd)
}

func (l *lexer) text(text string) {
	if text != "" {
		l.emit(tokenData, text)
	}
}

// before is what is left of the text before a delimiter: a minus takes all white space, and
// where there is none but white space since the beginning of the line, a block or comment
// takes that.
func (l *lexer) before(text string, sort, sign byte) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, unicode.IsSpace)
	}
	if sign == '+' || sort == '{' {
		return text
	}
	begin := strings.LastIndexByte(text, '\n') + 1
	if (begin > 0 || l.fresh) && strings.TrimSpace(text[begin:]) == "" {
		return text[:begin]
	}
	return text
}

// after takes the white space after a closing delimiter: all of it after a minus, and one
// newline after a block or comment without a plus.
func (l *lexer) after(sign byte, trims bool) {
	switch {
	case sign == '-':
		l.skip(len(l.rest) - len(strings.TrimLeftFunc(l.rest, unicode.IsSpace)))
	case sign != '+' && trims && strings.HasPrefix(l.rest, "\n"):
		l.skip(1)
	}
}

func (l *lexer) comment(begun int) error {
	end := strings.Index(l.rest, "#}")
	if end < 0 {
		return fail(begun, "a comment that begins with '{#' does not end")
	}
	sign := byte(0)
	if end > 0 && (l.rest[end-1] == '-' || l.rest[end-1] == '+') {
		sign = l.rest[end-1]
	}
	l.skip(end + 2)
	l.after(sign, true)
	return nil
}

// word reports whether a block holds this word alone, and what comes after its end.
func word(text, wanted string) (after string, ok bool) {
	text = strings.TrimLeftFunc(text, unicode.IsSpace)
	text, ok = strings.CutPrefix(text, wanted)
	if !ok {
		return "", false
	}
	text = strings.TrimLeftFunc(text, unicode.IsSpace)
	for _, end := range []string{"-%}", "+%}", "%}"} {
		if after, ok := strings.CutPrefix(text, end); ok {
			if end == "-%}" {
				after = strings.TrimLeftFunc(after, unicode.IsSpace)
			}
			return after, true
		}
	}
	return "", false
}

// raw takes what stands until endraw as it is.
func (l *lexer) raw(body string) error {
	begun := l.line
	l.skip(len(l.rest) - len(body))
	for at := 0; ; at += 2 {
		next := strings.Index(l.rest[at:], "{%")
		if next < 0 {
			return fail(begun, "'raw' is not closed by 'endraw'")
		}
		at += next
		inside, sign := l.rest[at+2:], byte(0)
		if inside != "" && (inside[0] == '-' || inside[0] == '+') {
			sign, inside = inside[0], inside[1:]
		}
		after, ok := word(inside, "endraw")
		if !ok {
			continue
		}
		l.text(l.before(l.rest[:at], '%', sign))
		closing := l.rest[:len(l.rest)-len(after)]
		l.skip(len(closing))
		if !strings.HasSuffix(strings.TrimRightFunc(closing, unicode.IsSpace), "+%}") {
			l.after(0, true)
		}
		return nil
	}
}

// expression takes tokens up to the closing delimiter.
func (l *lexer) expression(closing string, end kind) error {
	begun := l.line
	l.open = l.open[:0]
	for {
		l.skip(len(l.rest) - len(strings.TrimLeftFunc(l.rest, unicode.IsSpace)))
		if l.rest == "" {
			return fail(begun, "the template ends within %s", names[l.out[len(l.out)-1].kind])
		}
		if sign, ok := l.closes(closing); ok {
			l.emit(end, "")
			l.skip(len(closing))
			if sign != 0 {
				l.skip(1)
			}
			l.after(sign, end == tokenBlockEnd)
			return nil
		}
		if err := l.token(); err != nil {
			return err
		}
	}
}

// closes reports whether the delimiter comes next, and its sign. Within brackets it is none.
func (l *lexer) closes(closing string) (sign byte, ok bool) {
	if len(l.open) > 0 {
		return 0, false
	}
	if strings.HasPrefix(l.rest, closing) {
		return 0, true
	}
	if len(l.rest) > 1 && strings.HasPrefix(l.rest[1:], closing) && (l.rest[0] == '-' || l.rest[0] == '+' && closing == "%}") {
		return l.rest[0], true
	}
	return 0, false
}

// maxName is how long a name may be, and a number: each look-up of a name costs as much as the name is
// long.
const maxName = 256

// operators, the longest first.
var operators = []string{"**", "//", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "<", ">", "=", "(", ")", "[", "]", "{", "}", ".", ":", ",", "|", ";"}

func (l *lexer) token() error {
	c, _ := utf8.DecodeRuneInString(l.rest)
	switch {
	case c == '\'' || c == '"':
		return l.quoted(byte(c))
	case c >= '0' && c <= '9':
		return l.number()
	case c == '_' || unicode.IsLetter(c):
		end := strings.IndexFunc(l.rest, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		if end < 0 {
			end = len(l.rest)
		}
		if end > maxName {
			return fail(l.line, "the name %s is longer than %d bytes", value.Short(l.rest[:end]), maxName)
		}
		l.emit(tokenName, l.rest[:end])
		l.skip(end)
		return nil
	}
	for _, o := range operators {
		if strings.HasPrefix(l.rest, o) {
			l.emit(tokenOperator, o)
			l.skip(len(o))
			return l.bracket(o[0])
		}
	}
	return fail(l.line, "unexpected character %q", c)
}

// bracket keeps track of those that are open.
func (l *lexer) bracket(c byte) error {
	switch c {
	case '(', '[', '{':
		l.open = append(l.open, c)
	case ')', ']', '}':
		pair := map[byte]byte{')': '(', ']': '[', '}': '{'}[c]
		if len(l.open) == 0 || l.open[len(l.open)-1] != pair {
			return fail(l.line, "unexpected %q", string(c))
		}
		l.open = l.open[:len(l.open)-1]
	}
	return nil
}

func (l *lexer) number() error {
	text := numeral(l.rest)
	if len(text) > maxName {
		return fail(l.line, "a number is longer than %d bytes", maxName)
	}
	if _, err := strconv.ParseInt(text, 0, 64); err == nil && !octal(text) {
		l.emit(tokenInteger, text)
	} else if _, err := strconv.ParseFloat(text, 64); err == nil && strings.ContainsAny(text, ".eE") {
		l.emit(tokenFloat, text)
	} else {
		return fail(l.line, "%s is no number that can be read here", text)
	}
	l.skip(len(text))
	return nil
}

// numeral is what a text begins with that is to be a number, with its fraction and exponent. A dot
// that no digit follows belongs to what comes next.
func numeral(rest string) string {
	end := 0
	for ; end < len(rest) && end <= maxName; end++ {
		if c := rest[end]; c != '_' && !alphanumeric(c) && !(c == '.' && end+1 < len(rest) && digit(rest[end+1])) {
			break
		}
	}
	lower := strings.ToLower(rest[:end])
	if !strings.HasSuffix(lower, "e") || strings.HasPrefix(lower, "0x") || end == len(rest) || rest[end] != '-' && rest[end] != '+' {
		return rest[:end]
	}
	for end++; end < len(rest) && digit(rest[end]); end++ {
	}
	return rest[:end]
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

func alphanumeric(c byte) bool { return digit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// octal reports a number with zeros before it, which would be read in another base.
func octal(text string) bool {
	return len(text) > 1 && text[0] == '0' && strings.Trim(text, "0") != "" && text[1] >= '0' && text[1] <= '9'
}

// escapes of strings, as in Python.
var escapes = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", 'b': "\b", 'f': "\f", 'v': "\v", 'a': "\a", '0': "\x00", '\\': "\\", '\'': "'", '"': "\"", '\n': ""}

func (l *lexer) quoted(quote byte) error {
	var out strings.Builder
	for i := 1; i < len(l.rest); i++ {
		switch c := l.rest[i]; {
		case c == quote:
			l.emit(tokenString, out.String())
			l.skip(i + 1)
			return nil
		case c != '\\' || i+1 == len(l.rest):
			out.WriteByte(c)
		default:
			i++
			if text, ok := escapes[l.rest[i]]; ok {
				out.WriteString(text)
				continue
			}
			r, n := hexadecimal(l.rest[i:])
			if n == 0 {
				out.WriteByte('\\')
				out.WriteByte(l.rest[i])
				continue
			}
			out.WriteRune(r)
			i += n - 1
		}
	}
	return fail(l.line, "a string does not end")
}

// hexadecimal reads the escapes x, u and U; n is how many bytes it has, 0 if it is none.
func hexadecimal(text string) (r rune, n int) {
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[text[0]]
	if digits == 0 || len(text) < 1+digits {
		return 0, 0
	}
	code, err := strconv.ParseUint(text[1:1+digits], 16, 32)
	if err != nil || code > unicode.MaxRune {
		return 0, 0
	}
	return rune(code), 1 + digits
}
