package value

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// Compare is one comparison of Python's.
func (m *Meter) Compare(operator string, a, b any) (bool, error) {
	switch operator {
	case "==", "!=":
		same, err := m.equal(a, b, 0)
		return same == (operator == "=="), err
	case "in", "not in":
		in, err := m.Contains(b, a)
		return in == (operator == "in"), err
	}
	order, err := m.Order(a, b)
	if err != nil {
		return false, err
	}
	switch operator {
	case "<":
		return order < 0, nil
	case "<=":
		return order <= 0, nil
	case ">":
		return order > 0, nil
	}
	return order >= 0, nil
}

// Order compares numbers with numbers, strings with strings, and lists by their elements.
func (m *Meter) Order(a, b any) (int, error) { return m.order(a, b, 0) }

func (m *Meter) order(a, b any, depth int) (int, error) {
	if err := m.Step(); err != nil {
		return 0, err
	}
	if depth > MaxDepth {
		return 0, errDeep
	}
	if i, j, ok := integers(a, b); ok {
		return cmp.Compare(i, j), nil
	}
	if x, y, ok := floats(a, b); ok {
		return cmp.Compare(x, y), nil
	}
	switch a := a.(type) {
	case string:
		if b, ok := b.(string); ok {
			return cmp.Compare(a, b), m.Scan(a)
		}
	case *List:
		b, ok := b.(*List)
		if !ok || a.Tuple != b.Tuple {
			break
		}
		for i := range min(len(a.Items), len(b.Items)) {
			if o, err := m.order(a.Items[i], b.Items[i], depth+1); o != 0 || err != nil {
				return o, err
			}
		}
		return cmp.Compare(len(a.Items), len(b.Items)), nil
	}
	return 0, fmt.Errorf("%s and %s have no order", TypeName(a), TypeName(b))
}

// Contains is whether a list, a mapping by its keys, or a string has something in it.
func (m *Meter) Contains(in, what any) (bool, error) {
	switch in := in.(type) {
	case string:
		s, ok := what.(string)
		if !ok {
			return false, fmt.Errorf("'in' a string needs a string before it, and this is %s", TypeName(what))
		}
		return strings.Contains(in, s), m.Scan(in)
	case *Dict:
		_, ok, err := m.Get(in, what)
		return ok, err
	case *List:
		for _, item := range in.Items {
			if same, err := m.equal(item, what, 0); same || err != nil {
				return same, err
			}
		}
		return false, nil
	case Undefined:
		return false, nil
	}
	return false, fmt.Errorf("'in' needs a list, a mapping or a string after it, and this is %s", TypeName(in))
}

// Iterate are the elements that a loop goes through: of a mapping its keys, of a string its
// characters.
func (m *Meter) Iterate(v any) ([]any, error) {
	var out []any
	switch v := v.(type) {
	case *List:
		out = v.Items
	case *Dict:
		out = v.Keys
	case string:
		if err := m.Pay(len(v)); err != nil {
			return nil, err
		}
		out = make([]any, 0, len(v))
		for _, c := range v {
			out = append(out, string(c))
		}
		return out, nil
	case Undefined:
	default:
		return nil, fmt.Errorf("%s has no elements to go through", TypeName(v))
	}
	return out, m.Pay(len(out))
}

// Operate is one operation of arithmetic, as in Python.
func (m *Meter) Operate(operator string, a, b any) (any, error) {
	if operator == "~" {
		return m.join(a, b)
	}
	if s, ok := a.(string); ok && operator == "%" {
		return m.Format(s, b)
	}
	for _, v := range []any{a, b} {
		if u, ok := v.(Undefined); ok {
			return nil, errors.New(u.What)
		}
	}
	if i, j, ok := integers(a, b); ok && operator != "/" {
		return whole(operator, i, j)
	}
	if x, y, ok := floats(a, b); ok {
		return fractional(operator, x, y)
	}
	switch operator {
	case "+":
		return m.concatenate(a, b)
	case "*":
		return m.repeat(a, b)
	}
	return nil, impossible(operator, a, b)
}

// impossible is the error of an operation that there is not for these values.
func impossible(operator string, a, b any) error {
	return fmt.Errorf("'%s' of %s and %s is not possible", operator, TypeName(a), TypeName(b))
}

func (m *Meter) concatenate(a, b any) (any, error) {
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			return m.join(x, y)
		}
	case *List:
		if y, ok := b.(*List); ok && x.Tuple == y.Tuple {
			if err := m.Pay(len(x.Items) + len(y.Items)); err != nil {
				return nil, err
			}
			return &List{Tuple: x.Tuple, Items: slices.Concat(x.Items, y.Items)}, nil
		}
	}
	return nil, impossible("+", a, b)
}

func (m *Meter) join(a, b any) (any, error) {
	x, err := m.Text(a)
	if err != nil {
		return nil, err
	}
	y, err := m.Text(b)
	if err != nil {
		return nil, err
	}
	if err := m.Grow(len(x) + len(y)); err != nil {
		return nil, err
	}
	return x + y, nil
}

func (m *Meter) repeat(a, b any) (any, error) {
	n, ok := Integer(b)
	if !ok {
		a, b = b, a
		n, ok = Integer(b)
	}
	n = max(n, 0)
	switch v := a.(type) {
	case string:
		if !ok {
			break
		}
		n = min(n, MaxBytes+1)
		if err := m.Grow(len(v) * int(n)); err != nil {
			return nil, err
		}
		return strings.Repeat(v, int(n)), nil
	case *List:
		if !ok {
			break
		}
		n = min(n, MaxSteps+1)
		if err := m.Pay((len(v.Items) + 1) * int(n)); err != nil {
			return nil, err
		}
		return &List{Tuple: v.Tuple, Items: slices.Repeat(v.Items, int(n))}, nil
	}
	return nil, impossible("*", a, b)
}

// whole is arithmetic of whole numbers, which round down as in Python.
func whole(operator string, a, b int64) (any, error) {
	switch operator {
	case "+":
		if sum := a + b; (sum > a) == (b > 0) {
			return sum, nil
		}
	case "-":
		if difference := a - b; (difference < a) == (b > 0) {
			return difference, nil
		}
	case "*":
		if product, ok := multiply(a, b); ok {
			return product, nil
		}
	case "//", "%":
		return divide(operator, a, b)
	case "**":
		return power(a, b)
	}
	return nil, errors.New("the result has more than 64 bits")
}

func multiply(a, b int64) (int64, bool) {
	negative := (a < 0) != (b < 0)
	high, low := bits.Mul64(magnitude(a), magnitude(b))
	switch {
	case high != 0:
		return 0, false
	case negative && low <= 1<<63:
		return -int64(low), true
	case !negative && low < 1<<63:
		return int64(low), true
	}
	return 0, false
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

func divide(operator string, a, b int64) (any, error) {
	if b == 0 {
		return nil, errors.New("division by zero")
	}
	if a == math.MinInt64 && b == -1 {
		if operator == "%" {
			return int64(0), nil
		}
		return nil, errors.New("the result has more than 64 bits")
	}
	quotient, rest := a/b, a%b
	if rest != 0 && (rest < 0) != (b < 0) {
		quotient, rest = quotient-1, rest+b
	}
	if operator == "%" {
		return rest, nil
	}
	return quotient, nil
}

func power(a, b int64) (any, error) {
	if b < 0 {
		return fractional("**", float64(a), float64(b))
	}
	if magnitude(a) <= 1 { // a large exponent changes the sign at most
		if a == -1 && b%2 == 1 || a == 1 || b == 0 {
			return map[bool]int64{true: a, false: 1}[b != 0], nil
		}
		return a * a, nil
	}
	out := int64(1)
	for range b {
		var ok bool
		if out, ok = multiply(out, a); !ok {
			return nil, errors.New("the result has more than 64 bits")
		}
	}
	return out, nil
}

// fractional is arithmetic of numbers with fractions.
func fractional(operator string, a, b float64) (any, error) {
	switch operator {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	case "**":
		out := math.Pow(a, b)
		if math.IsNaN(out) || math.IsInf(out, 0) {
			return nil, errors.New("the result is no number, or too large a one")
		}
		return out, nil
	}
	if b == 0 {
		return nil, errors.New("division by zero")
	}
	switch operator {
	case "/":
		return a / b, nil
	case "//":
		return math.Floor(a / b), nil
	}
	rest := math.Mod(a, b)
	if rest != 0 && (rest < 0) != (b < 0) {
		rest += b
	}
	return rest + 0, nil // no zero with a sign
}
