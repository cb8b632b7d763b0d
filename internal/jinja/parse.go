package jinja

import (
	"slices"
	"strings"
)

// Template is a compiled template. It does not change, and can be rendered by several
// goroutines at once.
type Template struct{ body []placed }

// Compile reads a template. What is wrong with it is an *Error; filters and tests that do not
// exist are found here, what is not defined when it is rendered.
func Compile(source string) (*Template, error) {
	if len(source) > MaxSource {
		return nil, fail(1, "the template has %d bytes, and %d are allowed", len(source), MaxSource)
	}
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	body, err := p.statements()
	if err != nil {
		return nil, err
	}
	if t := p.now(); t.kind != tokenEnd {
		return nil, fail(t.line, "'%s' closes nothing", p.tokens[p.at+1].text)
	}
	return &Template{body}, nil
}

// parser goes through tokens. Its methods each read one form of the language.
type parser struct {
	tokens []token
	at     int
	depth  int
}

func (p *parser) now() token { return p.tokens[p.at] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != tokenEnd {
		p.at++
	}
	return t
}

// sees reports whether an operator comes next.
func (p *parser) sees(operator string) bool {
	t := p.now()
	return t.kind == tokenOperator && t.text == operator
}

// takes takes an operator if it comes next.
func (p *parser) takes(operator string) bool {
	if p.sees(operator) {
		p.at++
		return true
	}
	return false
}

// seesWord reports whether a name comes next that is a word of the language here.
func (p *parser) seesWord(word string) bool {
	t := p.now()
	return t.kind == tokenName && t.text == word
}

func (p *parser) takesWord(word string) bool {
	if p.seesWord(word) {
		p.at++
		return true
	}
	return false
}

func (p *parser) wants(operator string) error {
	if !p.takes(operator) {
		return fail(p.now().line, "expected '%s', and there is %s", operator, p.now())
	}
	return nil
}

func (p *parser) wantsKind(k kind) (token, error) {
	if t := p.now(); t.kind != k {
		return t, fail(t.line, "expected %s, and there is %s", names[k], t)
	}
	return p.next(), nil
}

// deeper bounds how deep things nest; what it returns undoes it.
func (p *parser) deeper() (func(), error) {
	if p.depth++; p.depth > MaxDepth {
		return nil, fail(p.now().line, "expressions or blocks are nested deeper than %d", MaxDepth)
	}
	return func() { p.depth-- }, nil
}

// statements reads until the end, or until a block that is none of its own, which is left.
func (p *parser) statements() ([]placed, error) {
	up, err := p.deeper()
	if err != nil {
		return nil, err
	}
	defer up()
	var out []placed
	for {
		switch t := p.now(); t.kind {
		case tokenData:
			out = append(out, placed{text(p.next().text), t.line})
		case tokenVariable:
			p.next()
			e, err := p.tuple()
			if err != nil {
				return nil, err
			}
			if _, err := p.wantsKind(tokenVariableEnd); err != nil {
				return nil, err
			}
			out = append(out, placed{output{e}, t.line})
		case tokenBlock:
			if slices.Contains(closers, p.tokens[p.at+1].text) {
				return out, nil
			}
			p.next()
			line := p.now().line
			s, err := p.statement()
			if err != nil {
				return nil, err
			}
			out = append(out, placed{s, line})
		default:
			return out, nil
		}
	}
}

// closers end a list of statements.
var closers = []string{"elif", "else", "endif", "endfor", "endset", "endwith", "endfilter", "endmacro"}

// loaders are tags that would load another template.
var loaders = []string{"include", "import", "from", "extends", "block"}

func (p *parser) statement() (statement, error) {
	t, err := p.wantsKind(tokenName)
	if err != nil {
		return nil, err
	}
	read := map[string]func(int) (statement, error){
		"if": p.condition, "for": p.loop, "set": p.set, "with": p.with, "filter": p.filterBlock, "macro": p.macro,
	}[t.text]
	switch {
	case slices.Contains(loaders, t.text):
		return nil, fail(t.line, "'%s' is not allowed: a template cannot load another", t.text)
	case read == nil:
		return nil, fail(t.line, "unknown tag '%s'", t.text)
	}
	return read(t.line)
}

// ends takes the end of a block that began with one of its words.
func (p *parser) ends() error {
	_, err := p.wantsKind(tokenBlockEnd)
	return err
}

// body reads statements up to one of the words, and takes it. begun is the line of what it is
// the body of.
func (p *parser) body(begun int, of string, words ...string) (body []placed, word string, err error) {
	if err := p.ends(); err != nil {
		return nil, "", err
	}
	if body, err = p.statements(); err != nil {
		return nil, "", err
	}
	if p.now().kind != tokenBlock {
		return nil, "", fail(begun, "'%s' is not closed by '%s'", of, words[len(words)-1])
	}
	p.next()
	t := p.next()
	if !slices.Contains(words, t.text) {
		return nil, "", fail(t.line, "'%s' within '%s' of line %d, which is closed by '%s'", t.text, of, begun, words[len(words)-1])
	}
	return body, t.text, nil
}

func (p *parser) condition(line int) (statement, error) {
	var out condition
	for word := "elif"; word == "elif"; {
		test, err := p.tuple()
		if err != nil {
			return nil, err
		}
		b := branch{test: test}
		if b.body, word, err = p.body(line, "if", "elif", "else", "endif"); err != nil {
			return nil, err
		}
		out.branches = append(out.branches, b)
		if word == "else" {
			if out.otherwise, _, err = p.body(line, "if", "endif"); err != nil {
				return nil, err
			}
		}
	}
	return out, p.ends()
}

func (p *parser) loop(line int) (statement, error) {
	var out loop
	var err error
	if out.target, err = p.targets(); err != nil {
		return nil, err
	}
	if !p.takesWord("in") {
		return nil, fail(line, "expected 'in', and there is %s", p.now())
	}
	if out.over, err = p.tupleOf(p.logical); err != nil {
		return nil, err
	}
	if p.takesWord("if") {
		if out.filter, err = p.expression(); err != nil {
			return nil, err
		}
	}
	if p.seesWord("recursive") {
		return nil, fail(line, "recursive loops are not supported")
	}
	var word string
	if out.body, word, err = p.body(line, "for", "else", "endfor"); err != nil {
		return nil, err
	}
	if word == "else" {
		if out.otherwise, _, err = p.body(line, "for", "endfor"); err != nil {
			return nil, err
		}
	}
	return out, p.ends()
}

// reserved are names that cannot be set.
var reserved = []string{"true", "false", "none", "True", "False", "None", "and", "or", "not", "in", "is", "if", "else", "loop"}

func (p *parser) name() (string, error) {
	t, err := p.wantsKind(tokenName)
	if err == nil && slices.Contains(reserved, t.text) {
		err = fail(t.line, "'%s' cannot be set", t.text)
	}
	return t.text, err
}

// targets reads the names that values are given to.
func (p *parser) targets() ([]string, error) {
	var out []string
	bracket := p.takes("(")
	for {
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		out = append(out, name)
		if !p.takes(",") || p.now().kind != tokenName || p.seesWord("in") {
			break
		}
	}
	if bracket {
		return out, p.wants(")")
	}
	return out, nil
}

func (p *parser) set(line int) (statement, error) {
	var out set
	var err error
	if out.target, err = p.targets(); err != nil {
		return nil, err
	}
	if len(out.target) == 1 && p.takes(".") {
		t, err := p.wantsKind(tokenName)
		if err != nil {
			return nil, err
		}
		out.attribute = t.text
	}
	if p.takes("=") {
		if out.value, err = p.tuple(); err != nil {
			return nil, err
		}
		return out, p.ends()
	}
	if len(out.target) > 1 {
		return nil, fail(line, "expected '=', and there is %s", p.now())
	}
	for p.takes("|") {
		f, err := p.filter(nil)
		if err != nil {
			return nil, err
		}
		out.filters = append(out.filters, f)
	}
	if out.body, _, err = p.body(line, "set", "endset"); err != nil {
		return nil, err
	}
	return out, p.ends()
}

func (p *parser) with(line int) (statement, error) {
	var out with
	for p.now().kind == tokenName {
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		if err := p.wants("="); err != nil {
			return nil, err
		}
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		out.names, out.values = append(out.names, name), append(out.values, e)
		if !p.takes(",") {
			break
		}
	}
	var err error
	if out.body, _, err = p.body(line, "with", "endwith"); err != nil {
		return nil, err
	}
	return out, p.ends()
}

func (p *parser) filterBlock(line int) (statement, error) {
	f, err := p.filter(nil)
	if err != nil {
		return nil, err
	}
	out := filterBlock{filters: []*filter{f}}
	for p.takes("|") {
		if f, err = p.filter(nil); err != nil {
			return nil, err
		}
		out.filters = append(out.filters, f)
	}
	if out.body, _, err = p.body(line, "filter", "endfilter"); err != nil {
		return nil, err
	}
	return out, p.ends()
}

func (p *parser) macro(line int) (statement, error) {
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	out := &macro{name: name}
	if err := p.wants("("); err != nil {
		return nil, err
	}
	for !p.takes(")") {
		argument, err := p.name()
		if err != nil {
			return nil, err
		}
		var value expression
		if p.takes("=") {
			if value, err = p.expression(); err != nil {
				return nil, err
			}
		} else if len(out.defaults) > 0 && out.defaults[len(out.defaults)-1] != nil {
			return nil, fail(line, "argument %s of macro %s has no default, and one before it has", argument, name)
		}
		out.arguments, out.defaults = append(out.arguments, argument), append(out.defaults, value)
		if !p.sees(")") {
			if err := p.wants(","); err != nil {
				return nil, err
			}
		}
	}
	if out.body, _, err = p.body(line, "macro", "endmacro"); err != nil {
		return nil, err
	}
	return out, p.ends()
}

// dotted is a name with dots in it, as in "is divisibleby".
func (p *parser) dotted() (string, int, error) {
	t, err := p.wantsKind(tokenName)
	parts := []string{t.text}
	for err == nil && p.takes(".") {
		var more token
		if more, err = p.wantsKind(tokenName); err == nil {
			parts = append(parts, more.text)
		}
	}
	return strings.Join(parts, "."), t.line, err
}
