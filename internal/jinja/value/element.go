package value

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Element is an element, by its key or by its place, which counts from the end if it is negative;
// false if there is none.
func (m *Meter) Element(of, index any) (any, bool, error) {
	switch of := of.(type) {
	case *Dict:
		return m.Get(of, index)
	case *List:
		if i, ok := place(index, len(of.Items)); ok {
			return of.Items[i], true, nil
		}
	case string:
		if err := m.Scan(of); err != nil {
			return nil, false, err
		}
		if i, ok := place(index, utf8.RuneCountInString(of)); ok {
			from := offset(of, i)
			return of[from : from+offset(of[from:], 1)], true, nil
		}
	}
	return nil, false, nil
}

// place is that of an element among n; false if there is none.
func place(index any, n int) (int, bool) {
	i, ok := Integer(index)
	if i < 0 {
		i += int64(n)
	}
	return int(i), ok && i >= 0 && i < int64(n)
}

// offset is how many bytes the first n characters of a string have.
func offset(s string, n int) int {
	for at := range s {
		if n == 0 {
			return at
		}
		n--
	}
	return len(s)
}

// Slice are the elements of a list or the characters of a string between bounds, which are the first,
// the one after the last, and the step.
func (m *Meter) Slice(of any, bounds [3]*int64) (any, error) {
	switch of := of.(type) {
	case string:
		return m.sliceText(of, bounds)
	case *List:
		s, err := sliceOf(len(of.Items), bounds)
		if err != nil {
			return nil, err
		}
		if s.step == 1 {
			return &List{Tuple: of.Tuple, Items: of.Items[s.first : s.first+s.n]}, nil
		}
		if err := m.Pay(s.n); err != nil {
			return nil, err
		}
		out := &List{Tuple: of.Tuple, Items: make([]any, s.n)}
		for i := range out.Items {
			out.Items[i] = of.Items[s.first+i*s.step]
		}
		return out, nil
	case Undefined:
		return nil, errors.New(of.What)
	}
	return nil, fmt.Errorf("%s cannot be sliced", TypeName(of))
}

// sliceText makes no text where the characters of the slice stand side by side.
func (m *Meter) sliceText(of string, bounds [3]*int64) (any, error) {
	if err := m.Scan(of); err != nil {
		return nil, err
	}
	s, err := sliceOf(utf8.RuneCountInString(of), bounds)
	if err != nil {
		return nil, err
	}
	if s.step == 1 {
		of = of[offset(of, s.first):]
		return of[:offset(of, s.n)], nil
	}
	if err := m.Grow(len(of)); err != nil {
		return nil, err
	}
	all := []rune(of)
	var out strings.Builder
	for i := range s.n {
		out.WriteRune(all[s.first+i*s.step])
	}
	return out.String(), nil
}

// slice are n places, the first of them, and from one to the next.
type slice struct{ first, n, step int }

// sliceOf is a slice of n elements, as Python makes it of its bounds.
func sliceOf(n int, bounds [3]*int64) (slice, error) {
	step := int64(1)
	if bounds[2] != nil {
		step = min(max(*bounds[2], -int64(n)-1), int64(n)+1) // a larger one goes beyond the end as well
	}
	if step == 0 {
		return slice{}, errors.New("the step of a slice cannot be 0")
	}
	low, high := int64(0), int64(n)
	if step < 0 {
		low, high = -1, int64(n)-1
	}
	at := func(b *int64, otherwise int64) int64 {
		if b == nil {
			return otherwise
		}
		i := *b
		if i < 0 {
			i += int64(n)
		}
		return min(max(i, low), high)
	}
	if step < 0 {
		begin, end := at(bounds[0], high), at(bounds[1], low)
		return slice{int(begin), int(max((begin-end-step-1)/-step, 0)), int(step)}, nil
	}
	begin, end := at(bounds[0], low), at(bounds[1], high)
	return slice{int(begin), int(max((end-begin+step-1)/step, 0)), int(step)}, nil
}
