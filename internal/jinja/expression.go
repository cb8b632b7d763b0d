package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// tuple reads an expression, or several with commas between them, which make a tuple.
func (p *parser) tuple() (expression, error) { return p.tupleOf(p.expression) }

func (p *parser) tupleOf(read func() (expression, error)) (expression, error) {
	first, err := read()
	if err != nil || !p.sees(",") {
		return first, err
	}
	out := sequence{items: []expression{first}, tuple: true}
	for p.takes(",") {
		if !p.begins() {
			break
		}
		e, err := read()
		if err != nil {
			return nil, err
		}
		out.items = append(out.items, e)
	}
	return out, nil
}

// openers are the operators that an expression can begin with.
var openers = []string{"(", "[", "{", "+", "-"}

// begins reports whether an expression can begin here.
func (p *parser) begins() bool {
	switch t := p.now(); t.kind {
	case tokenVariableEnd, tokenBlockEnd, tokenEnd:
		return false
	case tokenOperator:
		return slices.Contains(openers, t.text)
	case tokenName:
		return t.text != "in" && t.text != "if" && t.text != "recursive"
	}
	return true
}

// expression reads one with its conditions: a if b else c.
func (p *parser) expression() (expression, error) {
	up, err := p.deeper()
	if err != nil {
		return nil, err
	}
	defer up()
	e, err := p.logical()
	for err == nil && p.takesWord("if") {
		choice := choice{then: e}
		if choice.test, err = p.logical(); err != nil {
			return nil, err
		}
		if p.takesWord("else") {
			if choice.otherwise, err = p.expression(); err != nil {
				return nil, err
			}
		}
		e = choice
	}
	return e, err
}

// logical reads what binds tighter than a condition.
func (p *parser) logical() (expression, error) { return p.either() }

func (p *parser) either() (expression, error) {
	left, err := p.both()
	for err == nil && p.takesWord("or") {
		var right expression
		right, err = p.both()
		left = logical{left, right, false}
	}
	return left, err
}

func (p *parser) both() (expression, error) {
	left, err := p.negation()
	for err == nil && p.takesWord("and") {
		var right expression
		right, err = p.negation()
		left = logical{left, right, true}
	}
	return left, err
}

func (p *parser) negation() (expression, error) {
	if !p.takesWord("not") {
		return p.comparison()
	}
	up, err := p.deeper()
	if err != nil {
		return nil, err
	}
	defer up()
	e, err := p.negation()
	return negation{e}, err
}

// relation reads an operator of comparisons; "" if there is none.
func (p *parser) relation() string {
	for _, o := range []string{"==", "!=", "<=", ">=", "<", ">"} {
		if p.takes(o) {
			return o
		}
	}
	if p.takesWord("in") {
		return "in"
	}
	if p.seesWord("not") && p.tokens[p.at+1].kind == tokenName && p.tokens[p.at+1].text == "in" {
		p.at += 2
		return "not in"
	}
	return ""
}

func (p *parser) comparison() (expression, error) {
	line := p.now().line
	first, err := p.binary(0)
	if err != nil {
		return nil, err
	}
	out := comparison{first: first, line: line}
	for o := p.relation(); o != ""; o = p.relation() {
		e, err := p.binary(0)
		if err != nil {
			return nil, err
		}
		out.operators, out.rest = append(out.operators, o), append(out.rest, e)
	}
	if len(out.rest) == 0 {
		return first, nil
	}
	return out, nil
}

// levels are the operators of arithmetic, those that bind least first. A power binds less than
// a sign, and all are read from the left, as in Jinja.
var levels = [][]string{{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}}

func (p *parser) binary(level int) (expression, error) {
	if level == len(levels) {
		return p.unary(true)
	}
	left, err := p.binary(level + 1)
	for err == nil {
		line, operator := p.now().line, ""
		for _, o := range levels[level] {
			if p.takes(o) {
				operator = o
				break
			}
		}
		if operator == "" {
			break
		}
		var right expression
		right, err = p.binary(level + 1)
		left = binary{operator, left, right, line}
	}
	return left, err
}

// unary reads signs; filtered is whether filters may follow.
func (p *parser) unary(filtered bool) (expression, error) {
	up, err := p.deeper()
	if err != nil {
		return nil, err
	}
	defer up()
	line := p.now().line
	var e expression
	switch {
	case p.takes("-"):
		e, err = p.unary(false)
		e = unary{"-", e, line}
	case p.takes("+"):
		e, err = p.unary(false)
		e = unary{"+", e, line}
	default:
		e, err = p.primary()
	}
	if err == nil {
		e, err = p.postfix(e)
	}
	if err == nil && filtered {
		return p.filtered(e)
	}
	return e, err
}

// literals are names with a value.
var literals = map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (p *parser) primary() (expression, error) {
	t := p.next()
	switch t.kind {
	case tokenName:
		if value, ok := literals[t.text]; ok {
			return constant{value}, nil
		}
		return name{t.text}, nil
	case tokenString:
		return constant{p.adjacent(t)}, nil
	case tokenInteger:
		n, err := strconv.ParseInt(t.text, 0, 64)
		if err != nil {
			return nil, fail(t.line, "%s has more than 64 bits", t.text)
		}
		return constant{n}, nil
	case tokenFloat:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			return nil, fail(t.line, "%s is too large", t.text)
		}
		return constant{f}, nil
	case tokenOperator:
		switch t.text {
		case "(":
			return p.bracketed()
		case "[":
			items, err := p.items("]")
			return sequence{items: items}, err
		case "{":
			return p.mapping(t.line)
		}
	}
	return nil, fail(t.line, "expected an expression, and there is %s", t)
}

// adjacent is a string with those that follow it, which are one with it.
func (p *parser) adjacent(t token) string {
	if p.now().kind != tokenString {
		return t.text
	}
	var out strings.Builder
	out.WriteString(t.text)
	for p.now().kind == tokenString {
		out.WriteString(p.next().text)
	}
	return out.String()
}

func (p *parser) bracketed() (expression, error) {
	if p.takes(")") {
		return sequence{tuple: true}, nil
	}
	e, err := p.tuple()
	if err != nil {
		return nil, err
	}
	return e, p.wants(")")
}

func (p *parser) items(closing string) ([]expression, error) {
	var out []expression
	for !p.takes(closing) {
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		out = append(out, e)
		if !p.sees(closing) {
			if err := p.wants(","); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func (p *parser) mapping(line int) (expression, error) {
	out := mapping{line: line}
	for !p.takes("}") {
		key, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.wants(":"); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		out.keys, out.values = append(out.keys, key), append(out.values, value)
		if !p.sees("}") {
			if err := p.wants(","); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// postfix reads attributes, subscripts and calls.
func (p *parser) postfix(e expression) (expression, error) {
	for {
		line := p.now().line
		switch {
		case p.takes("."):
			t := p.next()
			switch t.kind {
			case tokenName:
				e = attribute{of: e, name: t.text, line: line}
			case tokenInteger:
				n, _ := strconv.ParseInt(t.text, 0, 64)
				e = subscript{of: e, index: constant{n}, line: line}
			default:
				return nil, fail(t.line, "expected a name or a number after '.', and there is %s", t)
			}
		case p.takes("["):
			var err error
			if e, err = p.subscript(e, line); err != nil {
				return nil, err
			}
		case p.sees("("):
			a, err := p.arguments()
			if err != nil {
				return nil, err
			}
			e = call{function: e, arguments: a, line: line}
		default:
			return e, nil
		}
	}
}

func (p *parser) subscript(of expression, line int) (expression, error) {
	var bounds [3]expression
	at, slice := 0, false
	for !p.sees("]") {
		if p.takes(":") {
			slice = true
			if at++; at == len(bounds) {
				return nil, fail(line, "a slice has three parts at most")
			}
			continue
		}
		if bounds[at] != nil {
			return nil, fail(line, "expected ']', and there is %s", p.now())
		}
		e, err := p.tuple()
		if err != nil {
			return nil, err
		}
		bounds[at] = e
	}
	p.next()
	switch {
	case slice:
		return cut{of: of, bounds: bounds, line: line}, nil
	case bounds[0] == nil:
		return nil, fail(line, "expected an expression, and there is ']'")
	}
	return subscript{of: of, index: bounds[0], line: line}, nil
}
